package hosts

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"

	"github.com/coopr/coopr/plugins/remote/ssh"
	"github.com/coopr/coopr/plugins/sdk"
)

// claim is the record on a machine of its current owner.
type claim struct {
	Tenant  string `json:"tenant,omitempty"`
	Mesh    string `json:"mesh,omitempty"`
	Cluster string `json:"cluster,omitempty"`
	Node    string `json:"node,omitempty"`
	Fence   uint64 `json:"fence,omitempty"`
	// Task is the CREATE task that claimed the machine; all its attempts have the same id.
	Task string `json:"task,omitempty"`
	// Refused is the reason why the machine is not handed out, or "".
	Refused string `json:"refused,omitempty"`
}

// of reports whether the claim is that of a task's node, made by any task.
func (c *claim) of(t *sdk.Task) bool {
	return c.Node == t.Node && c.Cluster == t.Cluster && c.Mesh == t.Mesh
}

// by reports whether an attempt at this task made the claim.
func (c *claim) by(t *sdk.Task) bool { return c.of(t) && c.Task == t.ID }

// The scripts that read and write claims. The first argument is the folder, which holds only the
// claim until the node is used. The claim's file is created with link(2), so that only one of
// several concurrent claims succeeds.
const (
	claimScript = `set -e; umask 077; mkdir -p "$1"; tmp="$1/claim.$$"; printf '%s\n' "$2" >"$tmp"
ln "$tmp" "$1/claim.json" 2>/dev/null || [ -e "$1/claim.json" ]; rm -f "$tmp"; cat "$1/claim.json"`
	readScript = `if [ -e "$1/claim.json" ]; then cat "$1/claim.json"; fi`
	// dropScript removes all of the folder's files, the claim last, if the claim is still the given
	// one.
	dropScript = `set -e; [ -e "$1/claim.json" ] || exit 0; [ "$(cat "$1/claim.json")" = "$2" ] || exit 3
for f in "$1"/* "$1"/.[!.]*; do [ "$f" = "$1/claim.json" ] || rm -rf "$f"; done; rm -f "$1/claim.json"; rmdir "$1" 2>/dev/null || :`
	// refuseScript replaces the claim with one that belongs to no node.
	refuseScript = `set -e; printf '%s\n' "$2" >"$1/claim.new"; mv -f "$1/claim.new" "$1/claim.json"`
)

// host is a machine with its connection.
type host struct {
	*machine
	node *ssh.Node
	dir  string
}

// run runs a script on the machine and returns its output.
func (h *host) run(ctx context.Context, what, script string, args ...string) (string, error) {
	out, err := h.node.Ask(ctx, what, script, append([]string{h.dir}, args...)...)
	if err != nil {
		return "", fmt.Errorf("machine %s: %w", h.Name, err)
	}
	return strings.TrimSpace(out), nil
}

// read returns the machine's claim, or nil if there is none.
func (h *host) read(ctx context.Context) (*claim, error) {
	out, err := h.run(ctx, "read the claim", readScript)
	if err != nil || out == "" {
		return nil, err
	}
	return h.decode(out)
}

func (h *host) decode(text string) (*claim, error) {
	var c claim
	if err := json.Unmarshal([]byte(text), &c); err != nil {
		return nil, fmt.Errorf("machine %s: %s/claim.json: %w", h.Name, h.dir, err)
	}
	return &c, nil
}

// take claims the machine and returns the claim that is in force: the given one or that of another
// node.
func (h *host) take(ctx context.Context, c *claim) (*claim, error) {
	b, err := json.Marshal(c)
	if err != nil {
		return nil, err
	}
	out, err := h.run(ctx, "claim the machine", claimScript, string(b))
	if err != nil {
		return nil, err
	}
	return h.decode(out)
}

// drop releases the machine.
func (h *host) drop(ctx context.Context, c *claim) error {
	b, err := json.Marshal(c)
	if err != nil {
		return err
	}
	_, err = h.run(ctx, "release the machine", dropScript, string(b))
	return err
}

// refuse excludes the machine from being handed out.
func (h *host) refuse(ctx context.Context, why string) error {
	b, err := json.Marshal(claim{Refused: why})
	if err != nil {
		return err
	}
	_, err = h.run(ctx, "mark the machine as refused", refuseScript, string(b))
	return err
}
