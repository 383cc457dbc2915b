package member

import (
	"context"
	"crypto/rand"
	"fmt"
	"strings"

	"github.com/coopr/coopr/consensus/logformat"
	"github.com/coopr/coopr/consensus/replica"
	"github.com/coopr/coopr/consensus/state"
	"github.com/coopr/coopr/engine/model"
	pb "github.com/coopr/coopr/rpc/proto"
)

// seed is the duty that writes the first tenant and the id of a new mesh.
type seed struct{ replica *replica.Replica }

// Name returns the name of the duty in logs.
func (s *seed) Name() string { return "seed" }

// Restore writes the first tenant unless there is one.
func (s *seed) Restore(ctx context.Context) error {
	if _, ok := s.replica.Machine.View().Tenant(model.FirstTenant); ok {
		return nil
	}
	first, err := logformat.PutTenant(&model.Tenant{Name: model.FirstTenant, Description: "the tenant that every mesh begins with"}, true)
	if err != nil {
		return err
	}
	answers, err := s.replica.Propose(ctx,
		&pb.Command{Actor: "coopr", Change: first},
		&pb.Command{Actor: "coopr", Change: &pb.Command_RaiseFeatureLevel{RaiseFeatureLevel: &pb.RaiseFeatureLevel{
			Level: state.FeatureLevel, Mesh: strings.ToLower(rand.Text()[:8]),
		}}})
	if err != nil {
		return fmt.Errorf("write the first tenant: %w", err)
	}
	return answers[1].Err
}

// Run waits for the end of the term.
func (s *seed) Run(ctx context.Context) error { <-ctx.Done(); return nil }
