package client

import (
	"bytes"
	"context"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"os"
	"strconv"
	"strings"
	"sync/atomic"
	"time"

	"github.com/coopr/coopr/rpc/api"
)

// DefaultPort is the port of the HTTP API.
const DefaultPort = "55054"

// Config has the addresses of a mesh and the caller's credentials.
type Config struct {
	// Addresses of agents: host, host:port or a URL. If it is empty, the client connects to
	// 127.0.0.1.
	Addresses []string
	Token     string
	// Tenant is another tenant than the token's. Only superadmins may set it.
	Tenant string
	// CACert is a file with the CA certificates of the agents. The client uses TLS if CACert is
	// set or an address begins with https.
	CACert string
	// TLS replaces the configuration that CACert results in.
	TLS *tls.Config
	// Patience is how long the client repeats a request while the mesh cannot answer it. 0 means
	// 15 seconds, but only 3 seconds while the mesh says that too few voters are there to have a leader; a negative
	// value means that it does not repeat requests.
	Patience time.Duration
	// Stale makes reads without a Consistency stale. Writes fail.
	Stale bool
	// OnStale is called with each answer from a stale read: how long ago the answering agent last heard from the leader.
	// known is false if it has not since it started. It may be nil.
	OnStale func(age time.Duration, known bool)
	// Transport replaces the network, for tests.
	Transport http.RoundTripper
}

// Client sends requests to a mesh. It is safe for concurrent use.
type Client struct {
	bases    []string
	next     atomic.Uint32
	token    string
	tenant   string
	patience time.Duration
	lost     time.Duration // the patience while too few voters are there
	stale    bool
	onStale  func(age time.Duration, known bool)
	http     *http.Client
	close    func()
}

// New returns a client. The client connects with the first request.
func New(cfg Config) (*Client, error) {
	c := &Client{token: cfg.Token, tenant: cfg.Tenant, patience: cfg.Patience, lost: cfg.Patience, stale: cfg.Stale, onStale: cfg.OnStale,
		close: func() {}}
	if c.patience == 0 {
		c.patience, c.lost = 15*time.Second, 3*time.Second
	}
	secure := cfg.TLS
	if secure == nil && cfg.CACert != "" {
		pem, err := os.ReadFile(cfg.CACert)
		if err != nil {
			return nil, fmt.Errorf("the mesh's certificates: %w", err)
		}
		pool := x509.NewCertPool()
		if !pool.AppendCertsFromPEM(pem) {
			return nil, fmt.Errorf("the mesh's certificates: there is none in %s", cfg.CACert)
		}
		secure = &tls.Config{RootCAs: pool, MinVersion: tls.VersionTLS12}
	}
	addresses := cfg.Addresses
	if len(addresses) == 0 {
		addresses = []string{"127.0.0.1"}
	}
	for _, a := range addresses {
		base, err := baseOf(a, secure != nil)
		if err != nil {
			return nil, err
		}
		if cfg.CACert != "" && !strings.HasPrefix(base, "https://") {
			return nil, fmt.Errorf("address %q: it is not encrypted, and so the CA certificates have no use: write https://", a)
		}
		c.bases = append(c.bases, base)
	}
	transport := cfg.Transport
	if transport == nil {
		t := &http.Transport{
			Proxy: http.ProxyFromEnvironment, TLSClientConfig: secure,
			DialContext:         dial,
			TLSHandshakeTimeout: 5 * time.Second, IdleConnTimeout: time.Minute, MaxIdleConnsPerHost: 4,
			ExpectContinueTimeout: time.Second,
		}
		c.close = t.CloseIdleConnections
		transport = t
	}
	c.http = &http.Client{Transport: transport}
	return c, nil
}

// keepAlive closes an idle connection, such as that of an event stream, half a minute after the
// agent's host has disappeared.
var keepAlive = net.KeepAliveConfig{Enable: true, Idle: 15 * time.Second, Interval: 5 * time.Second, Count: 3}

// dialTime bounds the time to connect.
const dialTime = 3 * time.Second

// silence is how long an agent may take to begin its answer, in addition to the time that the
// request asks it to wait. A host that is frozen or has lost its network never answers.
const silence = 30 * time.Second

// errSilent is the error of a request that got no answer in time.
var errSilent = errors.New("no answer")

// dial connects to an agent for a request with this context.
func dial(ctx context.Context, network, address string) (net.Conn, error) {
	d := net.Dialer{Timeout: dialTime, KeepAliveConfig: keepAlive}
	return d.DialContext(ctx, network, address)
}

// Close closes idle connections.
func (c *Client) Close() { c.close() }

// Addresses returns the agents' base URLs.
func (c *Client) Addresses() []string { return c.bases }

func baseOf(address string, secure bool) (string, error) {
	scheme, rest := "http", strings.TrimSpace(address)
	if secure {
		scheme = "https"
	}
	if s, r, ok := strings.Cut(rest, "://"); ok {
		scheme, rest = s, r
	}
	rest = strings.TrimSuffix(rest, "/")
	if scheme != "http" && scheme != "https" || rest == "" || strings.ContainsAny(rest, "/?# ") {
		return "", fmt.Errorf("address %q: give host, host:port or a URL such as https://host:%s", address, DefaultPort)
	}
	if _, _, err := net.SplitHostPort(rest); err != nil {
		rest = net.JoinHostPort(strings.Trim(rest, "[]"), DefaultPort)
	}
	return scheme + "://" + rest, nil
}

// Meta is the information in the headers of an answer.
type Meta struct {
	// Index is the index of the state that the answer is from.
	Index uint64
	// Repeated is true if a write with the same request id was carried out before.
	Repeated bool
	// Total is how many rows the whole list has that the filter selects, or 0 if they were not counted.
	Total int
	// Next is the cursor of the next page of a list, or "".
	Next string
	// Age is the age of the state that a stale read is from, if AgeKnown is true.
	Age      time.Duration
	AgeKnown bool
}

// Read has the options of a read. The zero value reads the leader's state at once.
type Read struct {
	// After makes the read wait until the state is newer than this index, for at most Wait.
	After       uint64
	Wait        time.Duration
	Consistency api.Consistency
}

func (r Read) query(q url.Values) url.Values {
	if q == nil {
		q = url.Values{}
	}
	if r.After > 0 {
		q.Set("index", strconv.FormatUint(r.After, 10))
	}
	if r.Wait > 0 {
		q.Set("wait", r.Wait.String())
	}
	if r.Consistency != "" {
		q.Set("consistency", string(r.Consistency))
	}
	return q
}

// request is a request, which may be sent several times.
type request struct {
	method string
	path   string
	query  url.Values
	header http.Header
	body   []byte
	// stream is a body that can be sent only once.
	stream io.Reader
	// again is a body that is read from its start for each attempt.
	again *io.SectionReader
	id    string
	// retry is true if a copy with the same id may be under way.
	retry bool
	// single is true for writes that the mesh may carry out again if they come again, so that only one
	// agent is asked at a time.
	single bool
	// short is true for reads whose answer begins at once.
	short bool
	// sdk is true for routes whose status alone does not decide: those that answer like the scheduler of the DC/OS SDK, and readyz.
	sdk bool
}

type requestIDKey struct{}

// WithRequestID returns a context whose writes carry this request id instead of a new one. The
// mesh carries out requests with the same id only once, for as long as it remembers the id: a day,
// unless its agents are configured otherwise. Each of them counts as repeated: if one is refused, the
// mesh carries out no other one that arrives later.
func WithRequestID(ctx context.Context, id string) context.Context {
	return context.WithValue(ctx, requestIDKey{}, id)
}

// NewRequestID returns a unique request id.
func NewRequestID() string { return rand.Text() }

func (c *Client) get(ctx context.Context, path string, read Read, query url.Values, into any) (Meta, error) {
	if c.stale && read.Consistency == "" {
		read.Consistency = api.Stale
	}
	m, err := c.ask(ctx, path, read.query(query), into)
	if err == nil && read.Consistency == api.Stale && c.onStale != nil {
		c.onStale(m.Age, m.AgeKnown)
	}
	return m, err
}

// ask is like get, for routes that do not read the replicated state, or only that of the leader.
func (c *Client) ask(ctx context.Context, path string, query url.Values, into any) (Meta, error) {
	return c.json(ctx, request{method: http.MethodGet, path: path, query: listed(ctx, query), short: true}, into)
}

func (c *Client) send(ctx context.Context, method, path string, query url.Values, body, into any) (Meta, error) {
	return c.write(ctx, request{method: method, path: path, query: query}, body, into)
}

// sendSingle is like send, for a write that the mesh may carry out again if it comes again.
func (c *Client) sendSingle(ctx context.Context, method, path string, body, into any) (Meta, error) {
	return c.write(ctx, request{method: method, path: path, single: true}, body, into)
}

// write sends a request with body in JSON, and decodes the answer into into.
func (c *Client) write(ctx context.Context, r request, body, into any) (Meta, error) {
	if body != nil {
		data, err := json.Marshal(body)
		if err != nil {
			return Meta{}, err
		}
		r.body = data
	}
	return c.json(ctx, r, into)
}

func (c *Client) json(ctx context.Context, r request, into any) (Meta, error) {
	resp, err := c.do(ctx, r)
	if err != nil {
		return Meta{}, err
	}
	defer resp.Body.Close()
	m := metaOf(resp)
	if into == nil {
		_, err = io.Copy(io.Discard, resp.Body)
	} else {
		err = json.NewDecoder(resp.Body).Decode(into)
	}
	if err != nil {
		return m, fmt.Errorf("%s %s: the answer cannot be read: %w", r.method, r.path, err)
	}
	return m, nil
}

func metaOf(resp *http.Response) Meta {
	index, _ := strconv.ParseUint(resp.Header.Get(api.HeaderIndex), 10, 64)
	total, _ := strconv.Atoi(resp.Header.Get(api.HeaderTotal))
	age, err := time.ParseDuration(resp.Header.Get(api.HeaderAge))
	return Meta{Index: index, Total: total, Next: resp.Header.Get(api.HeaderNext),
		Repeated: resp.Header.Get(api.HeaderRepeated) == "true", Age: age, AgeKnown: err == nil}
}

// once sends a request to one agent. An error that the agent answered is an answerError.
func (c *Client) once(ctx context.Context, base string, r request) (*http.Response, error) {
	target := base + r.path
	if len(r.query) > 0 {
		target += "?" + r.query.Encode()
	}
	var body io.Reader
	switch {
	case r.stream != nil:
		body = r.stream
	case r.again != nil:
		body = io.NewSectionReader(r.again, 0, r.again.Size()) // the transport may still read the previous reader
	case r.body != nil:
		body = bytes.NewReader(r.body)
	}
	req, err := http.NewRequestWithContext(ctx, r.method, target, body)
	if err != nil {
		return nil, err
	}
	if r.again != nil {
		req.ContentLength = r.again.Size()
	}
	for k, v := range r.header {
		req.Header[k] = v
	}
	if c.token != "" {
		req.Header.Set("Authorization", "Bearer "+c.token)
	}
	if c.tenant != "" && r.query.Get("tenant") == "" {
		req.Header.Set(api.HeaderTenant, c.tenant)
	}
	if r.id != "" {
		req.Header.Set(api.HeaderRequest, r.id)
	}
	if r.retry {
		req.Header.Set(api.HeaderRetry, "true")
	}
	if r.body != nil {
		req.Header.Set("Content-Type", "application/json")
	} else if r.stream != nil || r.again != nil {
		req.Header.Set("Content-Type", "application/octet-stream")
	}
	resp, err := c.begin(req, r)
	if err != nil {
		var ue *url.Error
		if errors.As(err, &ue) {
			err = ue.Err // the message has the URL already
		}
		return nil, err
	}
	if resp.StatusCode < 300 && !r.sdk {
		return resp, nil
	}
	if r.sdk {
		err = sdkAnswer(resp)
	} else {
		err = errorOf(resp)
	}
	if err != nil {
		resp.Body.Close()
		return nil, &answerError{err}
	}
	return resp, nil
}

// begin sends a request and returns the answer when its headers have arrived. It gives up after a
// time of silence, unless the request is an upload.
func (c *Client) begin(req *http.Request, r request) (*http.Response, error) {
	if r.stream != nil || r.again != nil {
		return c.http.Do(req)
	}
	silent := fmt.Errorf("%w within %v", errSilent, silence)
	ctx, cancel := context.WithCancelCause(req.Context())
	timer := time.AfterFunc(silence+r.wait(), func() { cancel(silent) })
	resp, err := c.http.Do(req.WithContext(ctx))
	if !timer.Stop() && err == nil {
		resp.Body.Close() // the answer arrived just after the request was cancelled
		err = silent
	}
	if err != nil {
		if errors.Is(context.Cause(ctx), errSilent) {
			err = silent
		}
		cancel(nil)
		return nil, err
	}
	resp.Body = &body{resp.Body, cancel}
	return resp, nil
}

// wait returns how long the request asks the agent to wait for a newer state.
func (r request) wait() time.Duration {
	if wait, err := time.ParseDuration(r.query.Get("wait")); err == nil {
		return wait
	}
	if r.query.Has("index") || r.query.Has("after") {
		return time.Minute // the agent's default
	}
	return 0
}

// body is the body of an answer. Closing it cancels the context of the request.
type body struct {
	io.ReadCloser
	cancel context.CancelCauseFunc
}

func (b *body) Close() error {
	defer b.cancel(nil)
	return b.ReadCloser.Close()
}

func errorOf(resp *http.Response) error {
	e := &Error{Status: resp.StatusCode}
	data, err := io.ReadAll(io.LimitReader(resp.Body, 4<<20))
	var p api.Problem
	if err == nil && json.Unmarshal(data, &p) == nil && p.Title != "" {
		e.Type, e.Title, e.Detail, e.Faults, e.Hints, e.Quorum = p.Type, p.Title, p.Detail, p.Errors, p.Hints, p.Quorum
		return e
	}
	e.Title = http.StatusText(resp.StatusCode)
	e.Detail = fmt.Sprintf("%s answered %s, and not as an agent of Coopr would: is the address right?", resp.Request.URL.Host, resp.Status)
	return e
}

// seg returns a name as one segment of a path.
func seg(name string) string { return url.PathEscape(name) }
