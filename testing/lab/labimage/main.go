// Labimage makes the image that light machines run from (testing/lab), once.
package main

import (
	"context"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"time"

	"github.com/coopr/coopr/testing/lab"
)

func main() {
	install := flag.Bool("install", false, "install what is missing (apt-get install mmdebstrap ansible-core)")
	optional := flag.Bool("optional", false, "where the image cannot be made, say so and exit with status 0: tests that need it are skipped")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	start := time.Now()
	dir, err := build(ctx, *install)
	if err != nil {
		fmt.Fprintln(os.Stderr, "labimage:", err)
		if *optional {
			fmt.Fprintln(os.Stderr, "labimage: tests with light machines WILL BE SKIPPED")
			return
		}
		os.Exit(1)
	}
	fmt.Printf("image of light machines: %s (%.1f s)\n", dir, time.Since(start).Seconds())
}

func build(ctx context.Context, install bool) (string, error) {
	var missing []string
	for tool, pkg := range map[string]string{"mmdebstrap": "mmdebstrap", "ansible-playbook": "ansible-core"} {
		if _, err := exec.LookPath(tool); err != nil && install {
			missing = append(missing, pkg)
		}
	}
	if len(missing) > 0 {
		for _, args := range [][]string{{"update", "-q"}, append([]string{"install", "-q", "--yes", "--no-install-recommends"}, missing...)} {
			cmd := exec.CommandContext(ctx, "apt-get", args...)
			cmd.Stderr = os.Stderr
			cmd.Env = append(os.Environ(), "DEBIAN_FRONTEND=noninteractive")
			if err := cmd.Run(); err != nil {
				return "", fmt.Errorf("apt-get %s: %w", args[0], err)
			}
		}
	}
	return lab.Build(ctx, os.Stderr)
}
