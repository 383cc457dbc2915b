// Labimage builds the image that light machines run from (testing/lab), once.
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
	check := flag.Bool("check", false, "build nothing; report whether light machines can run here")
	install := flag.Bool("install", false, "install mmdebstrap and ansible-core with apt-get if they are missing")
	optional := flag.Bool("optional", false, "exit with status 0 if the image cannot be built: tests that need it are skipped")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	if *check {
		if err := lab.Possible(); err != nil {
			exit(err, 1)
		}
		return
	}
	start := time.Now()
	dir, err := build(ctx, *install)
	switch {
	case err != nil && *optional:
		exit(err, 0)
	case err != nil:
		exit(err, 1)
	}
	fmt.Printf("image of light machines: %s (%.1f s)\n", dir, time.Since(start).Seconds())
}

func exit(err error, status int) {
	fmt.Fprintln(os.Stderr, "labimage:", err)
	fmt.Fprintln(os.Stderr, "labimage: tests with light machines are skipped")
	os.Exit(status)
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
