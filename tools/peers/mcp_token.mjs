// Adds the token to every request of the suite, which has no option for headers: node --import mcp_token.mjs
import { subscribe } from "node:diagnostics_channel";

const value = `Bearer ${process.env.MCP_SUITE_TOKEN}`;
subscribe("undici:request:create", ({ request }) => request.addHeader("authorization", value));
subscribe("http.client.request.created", ({ request }) => request.setHeader("authorization", value));
