package kit

import (
	"context"
	"fmt"

	"github.com/coopr/coopr/engine/model"
	"github.com/coopr/coopr/plugins/remote"
	"github.com/coopr/coopr/plugins/sdk"
)

// installer installs a Debian package, its second argument, unless the check that is its first
// argument succeeds, and finishes what an interrupted attempt began. Its status 100 means that the
// node cannot be used. apt-get fails with 100 whatever has gone wrong, so its failures become 1.
const installer = `eval "$1" >/dev/null 2>&1 && exit 0
[ -n "$2" ] || { echo "this fails on the node: $1" >&2; exit 100; }
command -v apt-get >/dev/null || { echo "$2 is missing, and there is no apt-get to install it with" >&2; exit 100; }
exec 9>/run/coopr-apt.lock && flock 9 || exit 1
export DEBIAN_FRONTEND=noninteractive
dpkg --configure -a && apt-get -q update && apt-get -q --yes --no-install-recommends install "$2" || exit 1`

// Install makes sure that the command check succeeds on a node: if it fails, Install installs the
// package pkg, or returns a fatal error if pkg is "".
func Install(ctx context.Context, t *sdk.Task, in *model.TaskInput, node remote.Node, check, pkg string) error {
	exit, err := Run(ctx, node, remote.Command{Args: []string{"/bin/sh", "-c", installer, "install", check, pkg}, Dir: "/",
		Env: Plain(t, in, node), Stdout: t.Stdout(), Stderr: t.Stderr()})
	if err != nil {
		return err
	}
	if exit.Code == 100 {
		return sdk.Fatal(fmt.Errorf("node %s cannot be used by the automator %s: this fails there: %s", t.Node, t.Plugin, check))
	}
	return Succeeded("the installation of "+pkg, exit)
}
