// Command writedocument writes what is generated from the API's routes: its OpenAPI document, and the page
// of permissions.
package main

import (
	"errors"
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
	if len(args) != 2 {
		return errors.New("usage: writedocument DOCUMENT PAGE")
	}
	for i, make := range []func() ([]byte, error){server.Document, server.Permissions} {
		text, err := make()
		if err != nil {
			return err
		}
		if err := os.WriteFile(args[i], text, 0o644); err != nil {
			return err
		}
	}
	return nil
}
