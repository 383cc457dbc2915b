// Command client lists the clusters of a mesh. It is a module of its own, to show that a
// program outside this repository needs nothing but the Go client.
//
//	COOPR_ADDR=control-1 COOPR_TOKEN=coopr-... go run .
package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"strings"

	"github.com/coopr/coopr/rpc/client"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	err := list(ctx, os.Stdout, client.Config{
		Addresses: strings.FieldsFunc(os.Getenv("COOPR_ADDR"), func(r rune) bool { return r == ',' }),
		Token:     os.Getenv("COOPR_TOKEN"),
		CACert:    os.Getenv("COOPR_CACERT"),
	})
	switch {
	case errors.Is(err, client.ErrUnauthorized):
		fmt.Fprintln(os.Stderr, "the mesh does not accept the token in COOPR_TOKEN:", err)
	case errors.Is(err, client.ErrUnreachable):
		fmt.Fprintln(os.Stderr, "no agent answers; set COOPR_ADDR to the address of one:", err)
	case err != nil:
		fmt.Fprintln(os.Stderr, err)
	}
	if err != nil {
		stop()
		os.Exit(1)
	}
}

// list writes a line for each cluster to w.
func list(ctx context.Context, w io.Writer, cfg client.Config) error {
	c, err := client.New(cfg)
	if err != nil {
		return err
	}
	defer c.Close()
	clusters, _, err := c.Clusters(ctx, client.ClusterFilter{}, client.Read{})
	if err != nil {
		return err
	}
	for _, x := range clusters {
		fmt.Fprintf(w, "%s\t%s\t%s\t%d nodes\n", x.ID, x.Name, x.Status, x.NumNodes)
	}
	return nil
}
