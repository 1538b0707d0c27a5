// Reads every table of a catalog with iceberg-go:
//
//	reader URI TOKEN WAREHOUSE NAMESPACE DIRECTORY
//
// The rows of each table become DIRECTORY/<table>.go, in Arrow's file format; if a table cannot be read,
// DIRECTORY/<table>.go-error has the reason.
package main

import (
	"context"
	"fmt"
	"os"
	"path/filepath"

	"github.com/apache/arrow-go/v18/arrow/array"
	"github.com/apache/arrow-go/v18/arrow/ipc"
	"github.com/apache/iceberg-go/catalog"
	"github.com/apache/iceberg-go/catalog/rest"
	_ "github.com/apache/iceberg-go/io/gocloud"
	"github.com/apache/iceberg-go/table"
)

func main() {
	ctx, names := context.Background(), os.Args[1:]
	uri, token, warehouse, namespace, directory := names[0], names[1], names[2], names[3], names[4]
	shared, err := rest.NewCatalog(ctx, "shared", uri, rest.WithOAuthToken(token), rest.WithWarehouseLocation(warehouse))
	check(err)
	var listed []table.Identifier
	for identifier, err := range shared.ListTables(ctx, catalog.ToIdentifier(namespace)) {
		check(err)
		listed = append(listed, identifier)
	}
	for _, identifier := range listed {
		path := filepath.Join(directory, identifier[len(identifier)-1])
		if err := read(ctx, shared, identifier, path+".go"); err != nil {
			check(os.WriteFile(path+".go-error", []byte(err.Error()), 0o600))
		}
	}
}

func read(ctx context.Context, shared catalog.Catalog, identifier table.Identifier, path string) (err error) {
	defer func() {
		if problem := recover(); problem != nil {
			err = fmt.Errorf("panic: %v", problem)
		}
	}()
	loaded, err := shared.LoadTable(ctx, identifier)
	if err != nil {
		return err
	}
	rows, err := loaded.Scan().ToArrowTable(ctx)
	if err != nil {
		return err
	}
	defer rows.Release()
	file, err := os.Create(path)
	if err != nil {
		return err
	}
	defer file.Close()
	writer, err := ipc.NewFileWriter(file, ipc.WithSchema(rows.Schema()))
	if err != nil {
		return err
	}
	reader := array.NewTableReader(rows, 0)
	defer reader.Release()
	for reader.Next() {
		if err := writer.Write(reader.RecordBatch()); err != nil {
			return err
		}
	}
	return writer.Close()
}

func check(err error) {
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}
