package agent

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"time"

	"golang.org/x/sync/singleflight"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"

	"github.com/coopr/coopr/agent/member"
	"github.com/coopr/coopr/agent/resources"
	"github.com/coopr/coopr/engine/model"
	"github.com/coopr/coopr/plugins/host"
	pb "github.com/coopr/coopr/rpc/proto"
)

// How long the shelf keeps what nobody needs, and what it waits for.
const (
	tendEvery   = time.Minute
	uploadGrace = time.Hour        // of contents that the state does not name (yet)
	cacheTime   = 24 * time.Hour   // of contents that only tasks of this agent used
	viewTime    = 10 * time.Minute // of folders that were laid out for tasks
	fetchTime   = 10 * time.Minute // for one content, from whichever agent
	mostSets    = 64               // that are remembered
	currentTime = 10 * time.Second // for what is in force
)

// errNoShelf says that the agent has no disk of its own.
var errNoShelf = errors.New("this agent has no data directory, and keeps no plugin resources")

// shelf is this agent's part in keeping plugin resources: every member of the Raft group
// has the contents that the state names, other agents fetch what their tasks need.
type shelf struct {
	a      *Agent
	blobs  *resources.Blobs // nil: the agent has no disk
	views  *resources.Views
	flight singleflight.Group
	poke   chan struct{} // one slot: the state names other contents

	ctx  context.Context // of all that outlives a request
	stop context.CancelFunc
	wg   sync.WaitGroup

	mu   sync.Mutex
	sets map[string]*model.ResourceSet // by tenant and number; they never change
	now  map[string]inForce            // by tenant
}

// openShelf makes the agent's shelf.
func (a *Agent) openShelf() (err error) {
	s := &shelf{a: a, poke: make(chan struct{}, 1), sets: map[string]*model.ResourceSet{}, now: map[string]inForce{}}
	s.ctx, s.stop = context.WithCancel(context.Background())
	a.shelf = s
	if a.cfg.DataDir == "" {
		return nil
	}
	dir, err := filepath.Abs(filepath.Join(a.cfg.DataDir, "resources"))
	if err != nil {
		return err
	}
	if s.blobs, err = resources.OpenBlobs(filepath.Join(dir, "contents")); err != nil {
		return err
	}
	s.views, err = resources.OpenViews(filepath.Join(dir, "folders"), s.open)
	return err
}

func (s *shelf) close() {
	s.mu.Lock()
	s.stop()
	s.mu.Unlock()
	s.wg.Wait()
}

// begin counts something that outlives its request, which ends with wg.Done; it fails once
// the shelf is closed.
func (s *shelf) begin() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if err := s.ctx.Err(); err != nil {
		return fmt.Errorf("this agent stops: %w", err)
	}
	s.wg.Add(1)
	return nil
}

// look lets the shelf see soon what the state names.
func (s *shelf) look() {
	select {
	case s.poke <- struct{}{}:
	default:
	}
}

// tend fetches what the state names and this disk lacks, and drops what nobody needs.
func (s *shelf) tend(ctx context.Context) error {
	if s.blobs == nil {
		return nil
	}
	tick := time.NewTicker(tendEvery)
	defer tick.Stop()
	for {
		s.stock(ctx)
		select {
		case <-ctx.Done():
			return nil
		case <-s.poke:
		case <-tick.C:
			s.sweep(time.Now())
		}
	}
}

// stock fetches what a member of the Raft group should have.
func (s *shelf) stock(ctx context.Context) {
	m := s.a.supervisor.Member()
	if m == nil || !m.Group.Member() {
		return
	}
	for sum, size := range m.Machine.View().Blobs() {
		if s.blobs.Has(sum, size) {
			continue
		}
		if err := s.fetch(ctx, sum, size, ""); err != nil && ctx.Err() == nil {
			s.a.log.Warn("the content of a plugin resource is missing here", "sha256", sum, "error", err)
		}
	}
}

func (s *shelf) sweep(now time.Time) {
	needed, untouched := map[string]int64{}, now.Add(-cacheTime)
	if m := s.a.supervisor.Member(); m != nil && m.Group.Member() {
		if id, _ := m.Group.Leader(); id == "" {
			return // what this member knows may be old
		}
		needed, untouched = m.Machine.View().Blobs(), now.Add(-uploadGrace)
	}
	_, err := s.blobs.Sweep(func(sum string) bool { _, ok := needed[sum]; return ok }, untouched)
	if err = errors.Join(err, s.views.Sweep(now.Add(-viewTime))); err != nil {
		s.a.log.Warn("old plugin resources are not all removed", "error", err)
	}
}

// open gives a pin's content, compared with its checksum, from this disk or from
// another agent's.
func (s *shelf) open(ctx context.Context, p model.ResourcePin) (*os.File, error) {
	f, err := s.blobs.Open(p.SHA256)
	if errors.Is(err, resources.ErrMissing) || errors.Is(err, resources.ErrSpoilt) {
		if errors.Is(err, resources.ErrSpoilt) {
			s.a.log.Error("the disk has spoilt the content of a plugin resource; it is fetched anew", "resource", p.String(), "sha256", p.SHA256)
		}
		if err = s.fetch(ctx, p.SHA256, p.Size, ""); err == nil {
			f, err = s.blobs.Open(p.SHA256)
		}
	}
	if err == nil {
		s.blobs.Touch(p.SHA256)
	}
	return f, err
}

// fetch gets a content from another agent: from the one named first, then from the
// leader, then from any. Who asks for the same at the same time waits for the same.
func (s *shelf) fetch(ctx context.Context, sum string, size int64, from string) error {
	done := s.flight.DoChan(sum, func() (any, error) {
		if err := s.begin(); err != nil {
			return nil, err
		}
		defer s.wg.Done()
		ctx, cancel := context.WithTimeout(s.ctx, fetchTime)
		defer cancel()
		return nil, s.fetchFrom(ctx, s.holders(ctx, from), sum, size)
	})
	select {
	case r := <-done:
		return r.Err
	case <-ctx.Done():
		return ctx.Err()
	}
}

// holders gives the agents to ask, those who surely have it first.
func (s *shelf) holders(ctx context.Context, from string) []string {
	ids := []string{from}
	find, cancel := context.WithTimeout(ctx, 3*time.Second)
	defer cancel()
	if id, _, err := s.a.locator.Leader(find); err == nil {
		ids = append(ids, id)
	}
	members := s.a.mesh.Members()
	for _, i := range rand.Perm(len(members)) {
		if m := members[i]; m.Alive() && m.Eligible {
			ids = append(ids, m.ID)
		}
	}
	for _, m := range members { // no member of the group, but its tasks may have used it
		if m.Alive() && !m.Eligible {
			ids = append(ids, m.ID)
		}
	}
	seen := map[string]bool{"": true, s.a.id: true}
	return slices.DeleteFunc(ids, func(id string) bool { was := seen[id]; seen[id] = true; return was })
}

func (s *shelf) fetchFrom(ctx context.Context, ids []string, sum string, size int64) error {
	asked := 0
	var errs error
	for _, id := range ids {
		err := s.take(ctx, id, sum, size)
		if err == nil {
			return nil
		}
		asked++
		if status.Code(err) != codes.NotFound {
			errs = errors.Join(errs, fmt.Errorf("agent %s: %w", s.a.agentName(id), err))
		}
	}
	if errs != nil {
		return fmt.Errorf("its content (SHA-256 %s) is not on this agent, and no other of %d gave it: %w", sum, asked, errs)
	}
	return fmt.Errorf("its content (SHA-256 %s) is on none of the %d agents that can be asked: bring back one that has it, or upload the same content again", sum, asked+1)
}

// take copies a content from one agent.
func (s *shelf) take(ctx context.Context, id, sum string, size int64) error {
	addr, err := s.a.peerAddr(id)
	if err != nil {
		return err
	}
	c, err := s.a.pool.Client(addr)
	if err != nil {
		return err
	}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	stream, err := c.Blob(ctx, &pb.BlobRequest{Sha256: sum})
	if err != nil {
		return err
	}
	_, _, err = s.blobs.Put(&pieces{stream: stream}, size, sum)
	return err
}

// pieces reads a stream of pieces.
type pieces struct {
	stream grpc.ServerStreamingClient[pb.BlobPiece]
	rest   []byte
}

func (p *pieces) Read(b []byte) (int, error) {
	for len(p.rest) == 0 {
		m, err := p.stream.Recv()
		if err != nil {
			return 0, err // io.EOF at the end
		}
		p.rest = m.Data
	}
	n := copy(b, p.rest)
	p.rest = p.rest[n:]
	return n, nil
}

// agentName is how people call an agent.
func (a *Agent) agentName(id string) string {
	if m, ok := a.mesh.Member(id); ok && m.Name != "" {
		return m.Name
	}
	return id
}

// spread has a content put on the disks of a majority of the voters, this agent's
// among them. The others go on after that.
func (s *shelf) spread(ctx context.Context, m *member.Member, sum string, size int64) error {
	voters, need := 0, 0
	var others []string
	for _, v := range m.Group.Servers() {
		if v.Voter {
			voters++
			if v.ID != s.a.id {
				others = append(others, v.ID)
			}
		}
	}
	if need = voters/2 + 1 - (voters - len(others)); need <= 0 {
		need = 0
	}
	answers := make(chan error, len(others))
	for _, id := range others {
		if err := s.begin(); err != nil {
			return err
		}
		go func() {
			defer s.wg.Done()
			ctx, cancel := context.WithTimeout(s.ctx, fetchTime)
			defer cancel()
			answers <- s.hold(ctx, id, sum, size)
		}()
	}
	var errs error
	for got, left := 0, len(others); got < need; left-- {
		if left < need-got {
			return fmt.Errorf("the content is on %d of %d voters, and has to be on %d: %w", got+1, voters, voters/2+1, errs)
		}
		select {
		case err := <-answers:
			if err == nil {
				got++
			} else {
				errs = errors.Join(errs, err)
			}
		case <-ctx.Done():
			return ctx.Err()
		}
	}
	return nil
}

func (s *shelf) hold(ctx context.Context, id, sum string, size int64) error {
	addr, err := s.a.peerAddr(id)
	if err == nil {
		var c pb.PeerClient
		if c, err = s.a.pool.Client(addr); err == nil {
			_, err = c.Hold(ctx, &pb.HoldRequest{Sha256: sum, Size: size, From: s.a.id})
		}
	}
	if err != nil {
		return fmt.Errorf("agent %s: %w", s.a.agentName(id), err)
	}
	return nil
}

// set gives a set of versions: as this member of the Raft group knows it, or as the
// leader does.
func (s *shelf) set(ctx context.Context, tenant string, number uint64) (*model.ResourceSet, error) {
	if m := s.a.supervisor.Member(); m != nil {
		if set, ok := m.Machine.View().ResourceSet(tenant, number); ok {
			return set, nil
		}
	}
	key := fmt.Sprintf("%s\x00%d", tenant, number)
	s.mu.Lock()
	set := s.sets[key]
	s.mu.Unlock()
	if set != nil {
		return set, nil
	}
	set, err := s.ask(ctx, tenant, number)
	if err != nil {
		return nil, err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(s.sets) >= mostSets {
		clear(s.sets)
	}
	s.sets[key] = set
	return set, nil
}

// ask asks the leader for a set; number 0 is the one in force.
func (s *shelf) ask(ctx context.Context, tenant string, number uint64) (*model.ResourceSet, error) {
	ctx, cancel := context.WithTimeout(ctx, 30*time.Second)
	defer cancel()
	_, addr, err := s.a.locator.AwaitLeader(ctx)
	if err != nil {
		return nil, err
	}
	c, err := s.a.pool.Client(addr)
	if err != nil {
		return nil, err
	}
	r, err := c.ResourceSet(ctx, &pb.ResourceSetRequest{Tenant: tenant, Number: number})
	if err != nil {
		return nil, fmt.Errorf("ask the leader for plugin resources: %w", err)
	}
	set := &model.ResourceSet{}
	if err := json.Unmarshal(r.Set, set); err != nil {
		return nil, fmt.Errorf("what the leader says of plugin resources: %w", err)
	}
	return set, nil
}

// inForce is a set that was in force at a time.
type inForce struct {
	*model.ResourceSet
	at time.Time
}

// current gives the versions that are in force now, as this member of the Raft group knows
// them. Any other agent asks the leader, now and then; what it heard last is good enough
// while there is none.
func (s *shelf) current(ctx context.Context, tenant string) (*model.ResourceSet, error) {
	if m := s.a.supervisor.Member(); m != nil && m.Group.Member() {
		set, ok := m.Machine.View().ResourcesInForce(tenant)
		if !ok {
			set = &model.ResourceSet{Tenant: tenant}
		}
		return set, nil
	}
	s.mu.Lock()
	known, ok := s.now[tenant]
	s.mu.Unlock()
	if ok && time.Since(known.at) < currentTime {
		return known.ResourceSet, nil
	}
	set, err := s.ask(ctx, tenant, 0)
	if err != nil {
		if ok && ctx.Err() == nil {
			return known.ResourceSet, nil
		}
		return nil, err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.now[tenant] = inForce{set, time.Now()}
	return set, nil
}

// withResources lays the resources that a task was planned with before its plugin.
type withResources struct {
	host.Executor
	shelf *shelf
}

// Execute carries out a task. Resources that cannot be had now may be had later, and
// nothing was done yet.
func (w withResources) Execute(ctx context.Context, t *pb.Task, sink host.Sink) *pb.Result {
	if t.Resources == 0 {
		return w.Executor.Execute(ctx, t, sink)
	}
	set, err := w.shelf.set(ctx, t.Tenant, t.Resources)
	return w.shelf.execute(ctx, w.Executor, set, err, t, sink)
}

// withCurrent lays the resources that are in force now before a plugin that acts outside
// of any plan.
type withCurrent struct {
	host.Executor
	shelf *shelf
}

// Execute carries out a task.
func (w withCurrent) Execute(ctx context.Context, t *pb.Task, sink host.Sink) *pb.Result {
	set, err := w.shelf.current(ctx, t.Tenant)
	return w.shelf.execute(ctx, w.Executor, set, err, t, sink)
}

// execute carries out a task with the resources of a set, or says why they cannot be had.
func (s *shelf) execute(ctx context.Context, x host.Executor, set *model.ResourceSet, err error, t *pb.Task, sink host.Sink) *pb.Result {
	dir, release := "", func() {}
	if err == nil {
		kind := model.KindProviderType
		if t.Automator {
			kind = model.KindAutomatorType
		}
		dir, release, err = s.lay(ctx, set.Of(kind, t.Plugin))
	}
	if err != nil {
		res := &pb.Result{Task: t.Id, Fence: t.Fence, Outcome: pb.Outcome_OUTCOME_NOTHING_DONE, Message: "plugin resources: " + err.Error()}
		if ctx.Err() != nil {
			res.Outcome = pb.Outcome_OUTCOME_CANCELLED
		}
		return res
	}
	defer release()
	if dir != "" {
		t = proto.CloneOf(t)
		t.ResourcesDir = dir
	}
	return x.Execute(ctx, t, sink)
}

// lay gives the folder with these resources; "" for none.
func (s *shelf) lay(ctx context.Context, pins []model.ResourcePin) (dir string, release func(), err error) {
	switch {
	case len(pins) == 0:
		return "", func() {}, nil
	case s.views == nil:
		return "", nil, errNoShelf
	}
	return s.views.Use(ctx, pins)
}

// Blob sends a content that this agent has.
func (p *peerServer) Blob(r *pb.BlobRequest, out grpc.ServerStreamingServer[pb.BlobPiece]) error {
	s := p.agent.shelf
	if s.blobs == nil {
		return status.Error(codes.NotFound, errNoShelf.Error())
	}
	f, err := s.blobs.Open(r.Sha256)
	switch {
	case errors.Is(err, resources.ErrSpoilt):
		s.look() // it is gone from the disk by now
		return status.Error(codes.NotFound, err.Error())
	case errors.Is(err, resources.ErrMissing):
		return status.Error(codes.NotFound, err.Error())
	case err != nil:
		return err
	}
	defer f.Close()
	s.blobs.Touch(r.Sha256)
	buf := make([]byte, 256<<10)
	for {
		n, err := f.Read(buf)
		if n > 0 {
			if err := out.Send(&pb.BlobPiece{Data: buf[:n]}); err != nil {
				return err
			}
		}
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return err
		}
	}
}

// Hold puts a content on this agent's disk before it answers.
func (p *peerServer) Hold(ctx context.Context, r *pb.HoldRequest) (*pb.HoldResponse, error) {
	s := p.agent.shelf
	if s.blobs == nil {
		return nil, status.Error(codes.FailedPrecondition, errNoShelf.Error())
	}
	if f, err := s.blobs.Open(r.Sha256); err == nil {
		s.blobs.Touch(r.Sha256)
		return &pb.HoldResponse{}, f.Close()
	}
	return &pb.HoldResponse{}, s.fetch(ctx, r.Sha256, r.Size, r.From)
}

// ResourceSet tells what a plan's resources are.
func (p *peerServer) ResourceSet(_ context.Context, r *pb.ResourceSetRequest) (*pb.ResourceSetResponse, error) {
	m := p.agent.supervisor.Member()
	if m == nil {
		return nil, status.Error(codes.Unavailable, "this agent holds no state")
	}
	set, ok := m.Machine.View().ResourceSet(r.Tenant, r.Number)
	if r.Number == 0 {
		if set, ok = m.Machine.View().ResourcesInForce(r.Tenant); !ok {
			set, ok = &model.ResourceSet{Tenant: r.Tenant}, true
		}
	}
	if !ok {
		return nil, status.Errorf(codes.NotFound, "tenant %s has no set %d of plugin resources any more", r.Tenant, r.Number)
	}
	b, err := json.Marshal(set)
	return &pb.ResourceSetResponse{Set: b}, err
}
