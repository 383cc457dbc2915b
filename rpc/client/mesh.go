package client

import (
	"context"
	"errors"
	"io"
	"net/http"
	"net/url"
	"strconv"

	"github.com/coopr/coopr/engine/model"
	"github.com/coopr/coopr/engine/roster"
	"github.com/coopr/coopr/rpc/api"
)

// Health checks that an agent answers. It needs no token.
func (c *Client) Health(ctx context.Context) error {
	_, err := c.ask(ctx, "/v1/healthz", nil, nil)
	return err
}

// Ready returns whether an agent can serve, and why not. It needs no token.
func (c *Client) Ready(ctx context.Context) (api.Readiness, error) {
	var out api.Readiness
	_, err := c.json(ctx, request{method: http.MethodGet, path: "/v1/readyz", short: true, sdk: true}, &out)
	return out, err
}

// Status returns the status of the agent that answers.
func (c *Client) Status(ctx context.Context) (api.AgentStatus, error) {
	var out api.AgentStatus
	_, err := c.ask(ctx, "/v1/status", nil, &out)
	return out, err
}

// Attention counts what needs attention: in all tenants if the token may name others and the client acts for none, or
// else in its own.
func (c *Client) Attention(ctx context.Context, read Read) (api.Attention, Meta, error) {
	var out api.Attention
	if c.tenant == "" {
		m, err := c.get(ctx, "/v1/attention", read, url.Values{"tenant": {api.AllTenants}}, &out)
		if !errors.Is(err, ErrForbidden) {
			return out, m, err
		}
	}
	m, err := c.get(ctx, "/v1/attention", read, nil, &out)
	return out, m, err
}

// Members returns the members of the mesh as the agent that answers sees them.
func (c *Client) Members(ctx context.Context) ([]api.Member, error) {
	var out []api.Member
	_, err := c.ask(ctx, "/v1/members", nil, &out)
	return out, err
}

// Agents returns the agents on record.
func (c *Client) Agents(ctx context.Context, read Read) ([]model.Agent, Meta, error) {
	var out []model.Agent
	m, err := c.get(ctx, "/v1/agents", read, nil, &out)
	return out, m, err
}

// Plugins returns the plugin types that the agents offer.
func (c *Client) Plugins(ctx context.Context, read Read) ([]model.PluginType, Meta, error) {
	var out []model.PluginType
	m, err := c.get(ctx, "/v1/plugins", read, nil, &out)
	return out, m, err
}

// Join makes the agent that answers contact the mesh at gossip addresses.
func (c *Client) Join(ctx context.Context, addresses []string) (int, error) {
	var out api.Joined
	_, err := c.sendSingle(ctx, http.MethodPost, "/v1/join", api.JoinBody{Addresses: addresses}, &out)
	return out.Reached, err
}

// Leave makes the agent that answers leave the mesh, or removes another agent, which must be dead unless force is set.
func (c *Client) Leave(ctx context.Context, agent string, force bool) error {
	_, err := c.sendSingle(ctx, http.MethodPost, "/v1/leave", api.LeaveBody{Agent: agent, Force: force}, nil)
	return err
}

// RemoveCompromised removes a voter that somebody else may have, and begins to replace the keys that it has. It returns what has secrets
// that the voter could decrypt.
func (c *Client) RemoveCompromised(ctx context.Context, agent string) ([]api.Exposed, error) {
	var out api.Left
	_, err := c.sendSingle(ctx, http.MethodPost, "/v1/leave", api.LeaveBody{Agent: agent, Compromised: true}, &out)
	return out.Exposed, err
}

// RaftPeers returns the members of the Raft group.
func (c *Client) RaftPeers(ctx context.Context) ([]api.RaftPeer, error) {
	var out []api.RaftPeer
	_, err := c.ask(ctx, "/v1/operator/raft/peers", nil, &out)
	return out, err
}

// RaftTransfer transfers the leadership to a voter, or to any voter if to is "".
func (c *Client) RaftTransfer(ctx context.Context, to string) error {
	_, err := c.sendSingle(ctx, http.MethodPost, "/v1/operator/raft/transfer", api.TransferBody{To: to}, nil)
	return err
}

// RaftRemove removes a member of the Raft group.
func (c *Client) RaftRemove(ctx context.Context, id string) error {
	_, err := c.sendSingle(ctx, http.MethodDelete, "/v1/operator/raft/peers/"+seg(id), nil, nil)
	return err
}

// Rotations returns the latest rotation of each kind of key.
func (c *Client) Rotations(ctx context.Context, r Read) ([]roster.Rotation, Meta, error) {
	var out []roster.Rotation
	m, err := c.get(ctx, "/v1/operator/rotations", r, nil, &out)
	return out, m, err
}

// Keyring returns what is known of the keyring, the other half of a backup.
func (c *Client) Keyring(ctx context.Context, r Read) (api.Keyring, Meta, error) {
	var out api.Keyring
	m, err := c.get(ctx, "/v1/operator/keyring", r, nil, &out)
	return out, m, err
}

// Rotate replaces a key of the mesh.
func (c *Client) Rotate(ctx context.Context, r api.NewRotation) (roster.Rotation, Meta, error) {
	var out roster.Rotation
	m, err := c.sendSingle(ctx, http.MethodPost, "/v1/operator/rotations", r, &out)
	return out, m, err
}

// SnapshotSave copies a snapshot of the whole state to w and returns its size.
func (c *Client) SnapshotSave(ctx context.Context, w io.Writer) (int64, error) {
	resp, err := c.do(ctx, request{method: http.MethodGet, path: "/v1/operator/snapshot"})
	if err != nil {
		return 0, err
	}
	defer resp.Body.Close()
	return io.Copy(w, resp.Body)
}

// SnapshotRestore replaces the whole state by a snapshot. The request is sent only once, as r can
// be read only once. Unless o says otherwise, the mesh is held then, until Resume.
func (c *Client) SnapshotRestore(ctx context.Context, r io.Reader, o api.RestoreOptions) error {
	q := url.Values{}
	if o.Unsigned {
		q.Set("unsigned", "true")
	}
	if o.Resume {
		q.Set("resume", "true")
	}
	if o.File != "" {
		q.Set("file", o.File)
	}
	_, err := c.json(ctx, request{method: http.MethodPost, path: "/v1/operator/snapshot", query: q, stream: r}, nil)
	return err
}

// Resume has a mesh begin work again that was restored from a snapshot.
func (c *Client) Resume(ctx context.Context) (Meta, error) {
	return c.sendSingle(ctx, http.MethodPost, "/v1/operator/resume", nil, nil)
}

// Metrics copies the metrics of the agent that answers to w.
func (c *Client) Metrics(ctx context.Context, w io.Writer) error {
	resp, err := c.do(ctx, request{method: http.MethodGet, path: "/v1/metrics"})
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	_, err = io.Copy(w, resp.Body)
	return err
}

// AgentLog returns the latest lines of the log of an agent, by id or name. With follow, it returns new lines from a level on (debug,
// info, warn or error), without end. The caller closes it.
func (c *Client) AgentLog(ctx context.Context, agent, level string, follow bool) (io.ReadCloser, error) {
	q := values("level", level)
	if follow {
		q.Set("follow", "true")
	}
	resp, err := c.do(ctx, request{method: http.MethodGet, path: "/v1/agents/" + seg(agent) + "/log", query: q})
	if err != nil {
		return nil, err
	}
	return resp.Body, nil
}

// ExamineAgent returns an archive (tar.gz) of the inner state of an agent, by id or name, which measures for some seconds. The last
// file of a whole archive is api.ManifestFile. The caller closes it.
func (c *Client) ExamineAgent(ctx context.Context, agent string, seconds int) (io.ReadCloser, error) {
	q := url.Values{"seconds": {strconv.Itoa(seconds)}}
	resp, err := c.do(ctx, request{method: http.MethodGet, path: "/v1/agents/" + seg(agent) + "/debug", query: q})
	if err != nil {
		return nil, err
	}
	return resp.Body, nil
}

// JoinTokens returns the tokens with which agents join the mesh.
func (c *Client) JoinTokens(ctx context.Context, r Read) ([]roster.JoinToken, Meta, error) {
	var out []roster.JoinToken
	m, err := c.get(ctx, "/v1/join-tokens", r, nil, &out)
	return out, m, err
}

// CreateJoinToken makes a token with which agents join the mesh.
func (c *Client) CreateJoinToken(ctx context.Context, t api.NewJoinToken) (api.IssuedJoinToken, Meta, error) {
	var out api.IssuedJoinToken
	m, err := c.sendSingle(ctx, http.MethodPost, "/v1/join-tokens", t, &out)
	return out, m, err
}

// DeleteJoinToken revokes a join token.
func (c *Client) DeleteJoinToken(ctx context.Context, id string) (Meta, error) {
	return c.send(ctx, http.MethodDelete, "/v1/join-tokens/"+seg(id), nil, nil, nil)
}
