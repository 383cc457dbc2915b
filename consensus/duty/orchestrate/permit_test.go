package orchestrate

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"github.com/coopr/coopr/engine/model"
	"github.com/coopr/coopr/engine/operation"
	"github.com/coopr/coopr/engine/problem"
	pb "github.com/coopr/coopr/rpc/proto"
)

// TestNodesMayBeForbidden checks that a policy about a node refuses the operations that are about this node, and only
// these.
func TestNodesMayBeForbidden(t *testing.T) {
	fewer(t)
	rapid.Check(t, func(t *rapid.T) {
		l, id := shop(t, 5)
		nodes := slices.DeleteFunc(l.m.View().Nodes("t", id), func(n *model.Node) bool { return !slices.Contains(n.Services, "web") })
		kept, other := nodes[0], nodes[1]
		policies := &model.Policies{Base: model.Base{Name: "kept"}, Text: `@message("ask ann") forbid (principal, action == Action::"operate", resource is Node)
			when { resource.name == "` + kept.Hostname + `" };`}
		l.must(&pb.Command{Tenant: "t", Change: &pb.Command_PutDefinitions{PutDefinitions: &pb.PutDefinitions{
			Definitions: []*pb.Definition{{Kind: string(model.KindPolicies), Name: "kept", Body: js(policies)}}}}})
		restart := func(n *model.Node) (*operation.Prepared, error) {
			p, _, err := l.o.StartConcurrent(context.Background(), who, id, model.OpRecover, []operation.Unit{{Node: n.ID, Services: n.Services}})
			return p, err
		}
		remove := func(by model.OperationType) func(*model.Node) (*operation.Prepared, error) {
			return func(n *model.Node) (*operation.Prepared, error) {
				p, _, err := l.o.Operate(context.Background(), who, id, operation.Request{Type: by, Victims: []string{n.ID}})
				return p, err
			}
		}
		if _, _, err := l.o.Operate(context.Background(), who, id, operation.Request{Type: model.OpRestart}); !errors.Is(err, problem.Forbidden) {
			t.Errorf("restart of all nodes: %v", err)
		}
		for _, order := range []func(*model.Node) (*operation.Prepared, error){restart, remove(model.OpReplaceNode), remove(model.OpShrink)} {
			_, err := order(kept)
			if !errors.Is(err, problem.Forbidden) {
				t.Errorf("of the node that a policy is about: %v", err)
			}
			for _, word := range []string{"operate node " + kept.Hostname, "ask ann"} {
				if !strings.Contains(fmt.Sprint(err), word) {
					t.Errorf("%q is missing in %v", word, err)
				}
			}
			p, err := order(other)
			if err != nil {
				t.Fatalf("of another node: %v", err)
			}
			l.run(p.Operation.ID, never, never)
		}
	})
}
