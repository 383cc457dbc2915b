// Command writedocument writes the API's OpenAPI document, which is generated from the
// handlers' types, to a file.
package main

import (
	"fmt"
	"os"

	"github.com/coopr/coopr/rpc/server"
)

func main() {
	if err := run(os.Args[1:]); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func run(args []string) error {
	if len(args) != 1 {
		return fmt.Errorf("usage: writedocument FILE")
	}
	doc, err := server.Document()
	if err != nil {
		return err
	}
	return os.WriteFile(args[0], doc, 0o644)
}
