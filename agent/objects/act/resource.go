package act

import (
	"context"
	"fmt"
	"maps"
	"path"
	"slices"
	"strings"
	"time"

	"github.com/coopr/coopr/engine/change/builtin"
)

// resource is a resource of a Pacemaker cluster.
type resource struct {
	*object
	content *builtin.Resource
}

func (r *resource) name() string {
	if r.content.Resource != "" {
		return r.content.Resource
	}
	return path.Base(r.job.Object.Name)
}

// tool finds crm or pcs.
func (r *resource) tool(ctx context.Context) (string, error) {
	if r.content.Tool != "" {
		return r.content.Tool, nil
	}
	code, _, err := r.sh(ctx, "command -v pcs >/dev/null && exit 10; command -v crm >/dev/null && exit 11; exit 0", "/", nil)
	switch {
	case err != nil:
		return "", err
	case code == 10:
		return "pcs", nil
	case code == 11:
		return "crm", nil
	}
	return "", fmt.Errorf("neither pcs nor crm is there: install the tools of Pacemaker on %s", r.job.Object.Host)
}

// Exit codes of the script that observes a resource.
const (
	haRuns    = 0
	haStopped = 3
	haAbsent  = 4
)

// probe finds out whether the resource exists, and whether it runs anywhere.
func (r *resource) probe(ctx context.Context) (int, string, error) {
	n := quote(r.name())
	return r.sh(ctx, `crm_resource --resource `+n+` --query-xml >/dev/null 2>&1 || exit 4
out=$(crm_resource --resource `+n+` --locate 2>&1) || { echo "$out"; exit 1; }
case $out in *"is running on"*) echo "$out"; exit 0;; *) echo "$out"; exit 3;; esac`, "/", nil)
}

func (r *resource) check(ctx context.Context) (string, string, error) {
	code, said, err := r.probe(ctx)
	if err != nil {
		return "", said, err
	}
	switch code {
	case haRuns:
		state, err := r.told(ctx)
		return state, said, err
	case haStopped, haAbsent:
		return "down", said, nil
	}
	return "", said, fmt.Errorf("crm_resource: exit code %d: %s", code, said)
}

func (r *resource) run(ctx context.Context, action string) error {
	tool, err := r.tool(ctx)
	if err != nil {
		return err
	}
	if action != "start" {
		if err := r.order(ctx, tool, "stop"); err != nil {
			return err
		}
	}
	start := action == "start" || action == "restart"
	if start {
		if err := r.make(ctx, tool); err != nil {
			return err
		}
		if err := r.order(ctx, tool, "start"); err != nil {
			return err
		}
	}
	return r.stamp(ctx, start)
}

// make creates the resource, or replaces one of another content.
func (r *resource) make(ctx context.Context, tool string) error {
	code, said, err := r.probe(ctx)
	if err != nil {
		return err
	}
	if r.content.Agent == "" {
		if code == haAbsent {
			return fmt.Errorf("the cluster has no resource %s, and its agent is not given: %s", r.name(), said)
		}
		return nil
	}
	st, err := r.stamped(ctx)
	if err != nil {
		return err
	}
	n := quote(r.name())
	if code != haAbsent {
		if st != nil && st.Content == r.job.Content {
			return nil
		}
		remove := map[string]string{"pcs": "pcs resource delete " + n + " --force", "crm": "crm configure delete " + n}[tool]
		if err := r.must(ctx, "delete "+r.name(), remove, "/", nil); err != nil {
			return err
		}
	}
	var b strings.Builder
	if tool == "pcs" {
		fmt.Fprintf(&b, "pcs resource create %s %s", n, quote(r.content.Agent))
		pairs(&b, r.content.Parameters)
		for _, op := range r.content.Operations {
			b.WriteString(" op " + op)
		}
		if b.WriteString(" meta"); len(r.content.Meta) > 0 {
			pairs(&b, r.content.Meta)
		}
		b.WriteString(" target-role=Stopped")
	} else {
		fmt.Fprintf(&b, "crm configure primitive %s %s", n, quote(r.content.Agent))
		if len(r.content.Parameters) > 0 {
			b.WriteString(" params")
			pairs(&b, r.content.Parameters)
		}
		for _, op := range r.content.Operations {
			b.WriteString(" op " + op)
		}
		b.WriteString(" meta")
		pairs(&b, r.content.Meta)
		b.WriteString(" target-role=Stopped")
	}
	return r.must(ctx, "make "+r.name(), b.String(), "/", nil)
}

func pairs(b *strings.Builder, m map[string]string) {
	for _, k := range slices.Sorted(maps.Keys(m)) {
		b.WriteString(" " + quote(k+"="+m[k]))
	}
}

// order starts or stops the resource, and waits until it is so.
func (r *resource) order(ctx context.Context, tool, verb string) error {
	want := map[string]int{"start": haRuns, "stop": haStopped}[verb]
	code, _, err := r.probe(ctx)
	if err != nil {
		return err
	}
	if code == want || verb == "stop" && code == haAbsent {
		return nil
	}
	word := verb
	if tool == "pcs" {
		word = map[string]string{"start": "enable", "stop": "disable"}[verb]
	}
	if err := r.must(ctx, verb+" "+r.name(), tool+" resource "+word+" "+quote(r.name()), "/", nil); err != nil {
		return err
	}
	for pause := 20 * time.Millisecond; ; pause = min(2*pause, time.Second) {
		code, said, err := r.probe(ctx)
		if err == nil && code == want {
			return nil
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("%s does not %s (%s): %w", r.name(), verb, said, context.Cause(ctx))
		case <-time.After(pause):
		}
	}
}
