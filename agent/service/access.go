package service

import (
	"context"
	"crypto/rand"
	"crypto/sha256"
	"crypto/subtle"
	"encoding/hex"
	"slices"
	"sync"
	"time"

	"github.com/coopr/coopr/agent/member"
	"github.com/coopr/coopr/consensus/logformat"
	"github.com/coopr/coopr/engine/model"
	"github.com/coopr/coopr/engine/problem"
	"github.com/coopr/coopr/engine/roster"
	"github.com/coopr/coopr/rpc/api"
	"github.com/coopr/coopr/rpc/identity"
	pb "github.com/coopr/coopr/rpc/proto"
	"github.com/coopr/coopr/rpc/server/rest"
)

// Tenants writes tenants.
type Tenants struct {
	Supervisor Supervisor
}

// Put creates or changes a tenant.
func (t *Tenants) Put(ctx context.Context, who model.Caller, tenant model.Tenant, createOnly bool) (api.Written, error) {
	put, err := logformat.PutTenant(&tenant, createOnly)
	if err != nil {
		return api.Written{}, err
	}
	return write(ctx, t.Supervisor, who, &pb.Command{Change: put})
}

// Delete deletes a tenant that has no clusters.
func (t *Tenants) Delete(ctx context.Context, who model.Caller, name string) (api.Written, error) {
	return write(ctx, t.Supervisor, who, &pb.Command{Change: &pb.Command_DeleteTenant{DeleteTenant: &pb.DeleteTenant{Name: name}}})
}

// Tokens writes tokens and recognises them.
type Tokens struct {
	Supervisor Supervisor
	// Root is the token of the superadmin, or "" if the state has its hash.
	Root string
	// RootActor is the superadmin's name in records.
	RootActor string
	// Now is the clock; nil: time.Now.
	Now func() time.Time
	// Started is when the agent started. The zero time is long ago.
	Started time.Time
	// Peers returns peer addresses of voters, for join tokens.
	Peers func() []string
	// Reporter reports uses of tokens to the leader; nil: nobody does.
	Reporter Reporter

	mu       sync.Mutex
	reported map[string]int64 // the hours of the uses that were reported, by the token's id
}

// Reporter reports to the leader that this agent has admitted a token; *worker.Worker implements it.
type Reporter interface {
	ReportUse(token string)
}

// Authenticate returns the caller that a token belongs to.
func (t *Tokens) Authenticate(_ context.Context, b rest.Bearer) (model.Caller, error) {
	token := b.Token
	if t.Root != "" && subtle.ConstantTimeCompare([]byte(token), []byte(t.Root)) == 1 {
		return t.root(), nil
	}
	if m := t.Supervisor.Member(); m != nil && token != "" {
		sum := sha256.Sum256([]byte(token))
		if mesh := m.Machine.View().MeshIdentity(); mesh != nil && subtle.ConstantTimeCompare(sum[:], mesh.RootHash) == 1 {
			return t.root(), nil
		}
		now := clock(t.Now).UnixMilli()
		who, ok := m.Machine.View().Caller(hex.EncodeToString(sum[:]), now, b.From)
		if ok && (operates(who) || !t.outdated(m)) {
			if hour := model.Hour(now); hour > who.Used {
				t.use(who.Token, hour)
			}
			return who, nil
		}
	}
	return model.Caller{}, problem.Unauthorized
}

// root returns the caller with the root token.
func (t *Tokens) root() model.Caller {
	return model.Caller{Tenant: model.FirstTenant, Actor: t.RootActor, Role: model.RoleSuperadmin, Root: true}
}

// contactTime is how long after its last contact with a leader an agent takes everybody's tokens. Later, only operators' count: it would
// not hear of somebody who was locked out.
const contactTime = 15 * time.Minute

// outdated reports whether the copy of an agent is too old to know everybody who was locked out. An agent that has just started has
// as long as one that has just lost contact, as nobody may be there to ask.
func (t *Tokens) outdated(m *member.Member) bool {
	if _, _, leads := t.Supervisor.Leader(); leads || m.Group.IsLeader() || time.Since(t.Started) < contactTime {
		return false
	}
	return time.Since(m.Group.Library().LastContact()) > contactTime
}

// operates reports whether a caller operates the mesh.
func operates(who model.Caller) bool {
	return who.Role == model.RoleSuperadmin || slices.Contains(who.Groups, "operator")
}

// maxReported bounds the uses that an agent remembers to have reported.
const maxReported = 10_000

// use notes that a token was used in an hour, which the state does not have yet. The leader records it; another agent reports it to
// the leader, once.
func (t *Tokens) use(id string, hour int64) {
	if _, l, ok := t.Supervisor.Leader(); ok {
		l.Uses.Note(hour, id)
		return
	}
	if t.Reporter == nil {
		return
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.reported[id] >= hour {
		return
	}
	if t.reported == nil || len(t.reported) >= maxReported {
		t.reported = map[string]int64{}
	}
	t.reported[id] = hour
	t.Reporter.ReportUse(id)
}

// Create returns the secret of a new token. The state keeps only its hash.
func (t *Tokens) Create(ctx context.Context, who model.Caller, token model.Token) (string, api.Written, error) {
	secret, put := newToken(token)
	w, err := write(ctx, t.Supervisor, who, &pb.Command{Change: &pb.Command_PutToken{PutToken: put}})
	if w.Repeated {
		return "", w, problem.New(problem.Conflict,
			"this request was carried out before, and the secret of a token is shown only once: revoke the token and create another")
	}
	return secret, w, err
}

// CreateJoin returns a new join token, of which the state keeps only a hash.
func (t *Tokens) CreateJoin(ctx context.Context, who model.Caller, token roster.JoinToken) (string, api.Written, error) {
	m, _, err := leader(t.Supervisor)
	if err != nil {
		return "", api.Written{}, err
	}
	mesh := m.Machine.View().MeshIdentity()
	if mesh == nil {
		return "", api.Written{}, problem.New(problem.Conflict, "the agents of this mesh share a secret: there are no join tokens")
	}
	made, err := identity.NewJoinToken(mesh.CAs[0], t.Peers())
	if err != nil {
		return "", api.Written{}, err
	}
	token.ID, token.Hash = made.ID(), made.Hash()
	put, err := logformat.EncodeJoinToken(&token)
	if err != nil {
		return "", api.Written{}, err
	}
	w, err := write(ctx, t.Supervisor, who, &pb.Command{Change: &pb.Command_PutJoinToken{PutJoinToken: &pb.PutJoinToken{Token: put}}})
	if w.Repeated {
		return "", w, problem.New(problem.Conflict,
			"this request was carried out before, and a join token is shown only once: revoke the token and create another")
	}
	return made.Text(), w, err
}

// DeleteJoin revokes a join token.
func (t *Tokens) DeleteJoin(ctx context.Context, who model.Caller, id string) (api.Written, error) {
	m, _, err := leader(t.Supervisor)
	if err != nil {
		return api.Written{}, err
	}
	if m.Machine.View().MeshIdentity() == nil {
		return api.Written{}, problem.New(problem.NotFound, "the agents of this mesh share a secret: there are no join tokens")
	}
	return write(ctx, t.Supervisor, who,
		&pb.Command{Change: &pb.Command_DeleteJoinToken{DeleteJoinToken: &pb.DeleteJoinToken{Id: id}}})
}

// newToken returns the secret of a new token, and what writes its record.
func newToken(t model.Token) (secret string, put *pb.PutToken) {
	secret = "coopr-" + rand.Text()
	sum := sha256.Sum256([]byte(secret))
	return secret, &pb.PutToken{
		Hash: sum[:], Id: rand.Text()[:8], Actor: t.Actor, Tenant: t.Tenant, Role: string(t.Role), Session: t.Session, Parent: t.Parent,
		ExpiresMs: t.Expires, RenewableMs: t.Renewable, Description: t.Description, Sources: t.Sources,
	}
}

// Renew moves the end of the caller's session. A user's directory is asked first: without its answer nothing is renewed.
func (t *Tokens) Renew(ctx context.Context, who model.Caller) (api.Written, error) {
	_, l, err := leader(t.Supervisor)
	if err == nil {
		err = l.Logins.Refresh(ctx, who.Tenant, who.Actor)
	}
	if err != nil {
		return api.Written{}, err
	}
	return write(ctx, t.Supervisor, who, &pb.Command{Change: &pb.Command_RenewToken{RenewToken: &pb.RenewToken{
		Id: who.Token, ExpiresMs: clock(t.Now).Add(sessionTime).UnixMilli(),
	}}})
}

// Delete revokes a token.
func (t *Tokens) Delete(ctx context.Context, who model.Caller, id string) (api.Written, error) {
	return write(ctx, t.Supervisor, who, &pb.Command{Change: &pb.Command_DeleteToken{DeleteToken: &pb.DeleteToken{Id: id}}})
}
