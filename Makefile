# Short names for the scripts that do the work.
.PHONY: demo check test bench
demo:
	bash scripts/demo
check:
	.ci/env/bin/ruff check . && .ci/env/bin/ruff format --check . && .ci/env/bin/mypy && .ci/env/bin/lint-imports --no-logo
test:
	bash scripts/test
bench:
	.ci/env/bin/python -m benchmarks
