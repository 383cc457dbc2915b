// Package heads has the leader's controller that signs the head of the audit log.
package heads

import (
	"context"
	"errors"
	"log/slog"
	"time"

	"github.com/coopr/coopr/consensus/duty/loop"
	"github.com/coopr/coopr/consensus/sealed"
	"github.com/coopr/coopr/consensus/state"
	"github.com/coopr/coopr/engine/audit"
	"github.com/coopr/coopr/engine/problem"
	pb "github.com/coopr/coopr/rpc/proto"
)

// Config configures a Controller. All fields are required.
type Config struct {
	Machine *state.Machine
	Propose func(ctx context.Context, commands ...*pb.Command) ([]state.Answer, error)
	Box     *sealed.Box
	Logger  *slog.Logger
}

// every is the time between two signed heads.
const every = time.Minute

// Controller signs the head of the audit log each minute in which it has grown, and once in each term. It is made for one term.
type Controller struct {
	cfg    Config
	queue  *loop.Queue[struct{}]
	signed audit.Place // of the latest record with a signed head in this term, if it was the last record then
	next   time.Time   // when there may be another one
}

// New returns the controller of one term.
func New(cfg Config) *Controller {
	c := &Controller{cfg: cfg}
	c.queue = loop.New(loop.Config[struct{}]{
		Reconcile:  func(ctx context.Context, _ struct{}) (time.Time, error) { return c.sign(ctx) },
		MaxBackoff: every,
		Failed: func(_ struct{}, err error, pause time.Duration) {
			cfg.Logger.Warn("the head of the audit log could not be signed", "error", err, "again_in", pause)
		},
	})
	return c
}

// Name returns the name of the duty.
func (c *Controller) Name() string { return "heads" }

// Restore does nothing: the first head of a term is always signed.
func (c *Controller) Restore(context.Context) error { return nil }

// Run signs heads until ctx ends.
func (c *Controller) Run(ctx context.Context) error {
	defer c.cfg.Machine.Watch(func(state.Batch) { c.queue.Add(struct{}{}) })()
	c.queue.Add(struct{}{})
	return c.queue.Run(ctx)
}

// sign signs the head, unless it is the record of the latest signed head itself. Before the mesh has a signing key, it does nothing.
func (c *Controller) sign(ctx context.Context) (time.Time, error) {
	if c.next.After(time.Now()) {
		return c.next, nil
	}
	v := c.cfg.Machine.View()
	head := v.Audit().Stats().Head
	if head.Seq == 0 || head == c.signed {
		return time.Time{}, nil
	}
	signer, err := c.cfg.Box.Signer(v.SealedView)
	if errors.Is(err, problem.NotFound) {
		return time.Time{}, nil
	}
	if err != nil {
		return time.Time{}, err
	}
	h, err := head.Sign(signer.Number, signer.Seed)
	if err != nil {
		return time.Time{}, err
	}
	c.next = time.Now().Add(every)
	answers, err := c.cfg.Propose(ctx, &pb.Command{Actor: "coopr", Change: &pb.Command_SignHead{SignHead: &pb.SignHead{
		Number: h.Seq, Hash: h.Hash[:], Key: h.Key, Signature: h.Signature,
	}}})
	if err == nil {
		err = answers[0].Err
	}
	if errors.Is(err, problem.Stale) { // a snapshot replaced the log meanwhile
		return c.next, nil
	}
	if err != nil {
		return time.Time{}, err
	}
	if at := c.cfg.Machine.View().Audit().Stats().Head; at.Seq == head.Seq+1 {
		c.signed = at
	}
	return c.next, nil
}
