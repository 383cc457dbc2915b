package bundle

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"runtime"
	"runtime/pprof"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/common/expfmt"
	"go.yaml.in/yaml/v3"

	"github.com/coopr/coopr/agent/config"
	"github.com/coopr/coopr/agent/doctor"
	"github.com/coopr/coopr/agent/member"
	"github.com/coopr/coopr/engine/problem"
	"github.com/coopr/coopr/rpc/api"
	pb "github.com/coopr/coopr/rpc/proto"
)

const (
	// mostPart and mostLog bound a part of an archive, and the lines of the log, in bytes.
	mostPart, mostLog = 8 << 20, 1 << 20
	// partTime bounds the time that a part takes, besides the seconds of a measurement.
	partTime = 20 * time.Second
	// mostSeconds bounds a measurement.
	mostSeconds = 60
)

// Agent is this agent, as it shows itself. All fields are required.
type Agent struct {
	ID         string
	Build      string // version of this agent's binary
	Supervisor interface{ Member() *member.Member }
	// Mesh has what this agent knows of itself and of others.
	Mesh interface {
		Status(ctx context.Context) api.AgentStatus
		Members() []api.Member
	}
	Metrics  prometheus.Gatherer
	Settings func() *config.Config
	Logger   *slog.Logger

	busy sync.Mutex // held by an examination
}

// part is a part of an archive.
type part struct {
	name string
	time time.Duration
	make func(ctx context.Context, w io.Writer) error
}

// parts returns the parts of an archive, in order. Metrics are taken before and after the measurement.
func (a *Agent) parts(seconds int) []part {
	measured := time.Duration(seconds) * time.Second
	of := func(name string, write func(ctx context.Context, w io.Writer) error) part {
		return part{name, partTime, write}
	}
	object := func(name string, value func(ctx context.Context) (any, error)) part {
		return of(name, func(ctx context.Context, w io.Writer) error {
			v, err := value(ctx)
			if err != nil {
				return err
			}
			e := json.NewEncoder(w)
			e.SetIndent("", "  ")
			return e.Encode(v)
		})
	}
	profile := func(name string, debug int) func(context.Context, io.Writer) error {
		return func(_ context.Context, w io.Writer) error { return pprof.Lookup(name).WriteTo(w, debug) }
	}
	return []part{
		object("version.json", a.version),
		object("status.json", func(ctx context.Context) (any, error) { return a.Mesh.Status(ctx), nil }),
		object("members.json", func(context.Context) (any, error) { return a.Mesh.Members(), nil }),
		object("raft.json", a.raft),
		of("config.yaml", a.config),
		of("metrics-before.txt", a.metrics),
		{"cpu.pprof", measured + partTime, func(ctx context.Context, w io.Writer) error { return cpu(ctx, w, measured) }},
		of("metrics-after.txt", a.metrics),
		of("goroutines.txt", profile("goroutine", 1)),
		of("heap.pprof", profile("heap", 0)),
		object("doctor.json", a.doctor),
		of("log.txt", func(ctx context.Context, w io.Writer) error { return a.log(ctx, &pb.AgentLogRequest{}, w) }),
	}
}

// examine writes an archive about this agent. Its last file is the manifest.
func (a *Agent) examine(ctx context.Context, r *pb.ExamineRequest, out io.Writer) error {
	if r.Seconds > mostSeconds {
		return problem.New(problem.Conflict, "an agent measures for %d seconds at most", mostSeconds)
	}
	if !a.busy.TryLock() {
		return problem.New(problem.Conflict, "this agent is being examined already: try again later")
	}
	defer a.busy.Unlock()
	return write(ctx, out, a.parts(int(r.Seconds)), api.AgentManifest{
		Agent: a.ID, Name: a.Settings().Name, Build: a.Build, Time: time.Now().UnixMilli(), Seconds: int(r.Seconds)})
}

// write writes an archive of parts. A part that fails is named in the manifest, and does not fail the archive.
func write(ctx context.Context, out io.Writer, parts []part, manifest api.AgentManifest) error {
	zip := gzip.NewWriter(out)
	archive := tar.NewWriter(zip)
	add := func(name string, content []byte) error {
		h := &tar.Header{Name: name, Mode: 0o600, Size: int64(len(content)), ModTime: time.UnixMilli(manifest.Time)}
		if err := archive.WriteHeader(h); err != nil {
			return err
		}
		if _, err := archive.Write(content); err != nil {
			return err
		}
		return errors.Join(archive.Flush(), zip.Flush())
	}
	for _, p := range parts {
		content, done := p.run(ctx)
		if ctx.Err() != nil {
			return ctx.Err()
		}
		manifest.Parts = append(manifest.Parts, done)
		if done.Error != "" && len(content) == 0 {
			continue
		}
		if err := add(p.name, content); err != nil {
			return err
		}
	}
	text, err := json.MarshalIndent(manifest, "", "  ")
	if err != nil {
		return err
	}
	return errors.Join(add(api.ManifestFile, append(text, '\n')), archive.Close(), zip.Close())
}

// run makes a part, within its bounds. A part that takes too long is left behind; what it has written until then counts.
func (p part) run(ctx context.Context) (content []byte, done api.BundlePart) {
	started := time.Now()
	ctx, cancel := context.WithTimeout(ctx, p.time)
	defer cancel()
	b, ended := &bounded{most: mostPart}, make(chan error, 1)
	go func() { ended <- p.make(ctx, b) }()
	var err error
	select {
	case err = <-ended:
	case <-ctx.Done():
		err = fmt.Errorf("it takes longer than %s", p.time)
	}
	content, cut := b.close()
	done = api.BundlePart{Name: p.name, Bytes: int64(len(content)), Truncated: cut, Milliseconds: time.Since(started).Milliseconds()}
	if err != nil && !errors.Is(err, errFull) {
		done.Error = err.Error()
	}
	return content, done
}

// errFull is the error of writes beyond the bound of a part.
var errFull = errors.New("the part is too large")

// bounded keeps the first bytes of what is written until it is closed.
type bounded struct {
	most int

	mu     sync.Mutex
	text   bytes.Buffer
	cut    bool
	closed bool
}

func (b *bounded) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.closed {
		return 0, errFull
	}
	if room := b.most - b.text.Len(); len(p) > room {
		b.cut = true
		n, _ := b.text.Write(p[:room]) // it never fails
		return n, errFull
	}
	return b.text.Write(p)
}

func (b *bounded) close() (text []byte, cut bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.closed = true
	return b.text.Bytes(), b.cut
}

func (a *Agent) version(context.Context) (any, error) {
	return map[string]any{"build": a.Build, "go": runtime.Version(), "system": runtime.GOOS, "architecture": runtime.GOARCH,
		"processors": runtime.NumCPU(), "goroutines": runtime.NumGoroutine()}, nil
}

func (a *Agent) raft(context.Context) (any, error) {
	m := a.Supervisor.Member()
	if m == nil {
		return nil, errors.New("this agent has no copy of the state")
	}
	return m.Group.Stats(), nil
}

func (a *Agent) config(_ context.Context, w io.Writer) error {
	text, err := yaml.Marshal(a.Settings().Shown())
	if err == nil {
		_, err = w.Write(text)
	}
	return err
}

func (a *Agent) metrics(_ context.Context, w io.Writer) error {
	families, err := a.Metrics.Gather()
	if err != nil {
		return err
	}
	enc := expfmt.NewEncoder(w, expfmt.NewFormat(expfmt.TypeTextPlain))
	for _, f := range families {
		if err := enc.Encode(f); err != nil {
			return err
		}
	}
	return nil
}

func (a *Agent) doctor(ctx context.Context) (any, error) {
	cfg := *a.Settings()
	if cfg.DataDir == "" {
		return nil, errors.New("this agent has no data directory")
	}
	return doctor.Examine(ctx, cfg, a.Build), nil
}

// cpu writes a profile of the time that the processors spend.
func cpu(ctx context.Context, w io.Writer, measured time.Duration) error {
	if err := pprof.StartCPUProfile(w); err != nil {
		return err
	}
	defer pprof.StopCPUProfile()
	select {
	case <-time.After(measured):
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}
