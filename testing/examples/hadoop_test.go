package examples

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/coopr/coopr/engine/model"
)

// hadoop is a cluster of examples/hadoop-shape, as its clients see it.
type hadoop struct {
	*installation
	t      *testing.T
	master string // address of the node with all masters

	mu      sync.Mutex
	asked   int
	written map[string]string // of the table: what was acknowledged
	tried   map[string]string // what was written last, acknowledged or not
}

// The services' ports on the master.
const (
	hdfs  = "50070"
	yarn  = "8088"
	hbase = "60010"
)

// http sends one request to a service of the master and returns the body of the answer.
func (h *hadoop) http(ctx context.Context, method, port, path string, body []byte) ([]byte, error) {
	ctx, cancel := context.WithTimeout(ctx, time.Minute)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, method, "http://"+h.master+":"+port+"/"+path, bytes.NewReader(body))
	if err != nil {
		return nil, err
	}
	transport := &http.Transport{DisableKeepAlives: true}
	defer transport.CloseIdleConnections()
	resp, err := transport.RoundTrip(req)
	if err != nil {
		return nil, err
	}
	defer resp.Body.Close()
	b, err := io.ReadAll(resp.Body)
	if err == nil && resp.StatusCode != http.StatusOK {
		err = fmt.Errorf("%s %s: status %d: %.200s", method, path, resp.StatusCode, b)
	}
	return b, err
}

// must is http with an answer in JSON, for what does not fail.
func (h *hadoop) must(method, port, path string, in []byte, out any) {
	h.t.Helper()
	b, err := h.http(h.Context(), method, port, path, in)
	if err == nil && out != nil {
		err = json.Unmarshal(b, out)
	}
	if err != nil {
		h.t.Fatalf("%v: %s", err, b)
	}
}

// state is the state that the namenode reports.
type state struct {
	Datanodes       map[string]struct{ Blocks int }
	Blocks, Missing int
	TooFewCopies    int  `json:"too_few_copies"`
	SafeMode        bool `json:"safe_mode"`
}

// whole awaits that every slave of the cluster takes part, as a datanode, a node
// manager and a region server, and that every block has its copies.
func (h *hadoop) whole(when string) {
	h.t.Helper()
	var want []string
	for _, n := range h.nodes("big", "hadoop-hdfs-datanode") {
		want = append(want, addressOf(n))
	}
	slices.Sort(want)
	h.Await(when, func() error {
		var s state
		var y struct{ Nodes []string }
		var b struct{ Regionservers map[string][]int }
		for port, out := range map[string]any{hdfs: &s, yarn: &y, hbase: &b} {
			text, err := h.http(h.Context(), http.MethodGet, port, "", nil)
			if err == nil {
				err = json.Unmarshal(text, out)
			}
			if err != nil {
				return err
			}
		}
		if s.SafeMode || s.Missing+s.TooFewCopies > 0 {
			return fmt.Errorf("HDFS is %+v", s)
		}
		regions := 0
		for _, have := range b.Regionservers {
			regions += len(have)
		}
		if regions != 8 {
			return fmt.Errorf("regions are on %v", b.Regionservers)
		}
		for what, have := range map[string][]string{"datanodes": keys(s.Datanodes), "node managers": y.Nodes,
			"region servers": keys(b.Regionservers)} {
			if !slices.Equal(have, want) {
				return fmt.Errorf("%s are %v, not %v", what, have, want)
			}
		}
		return nil
	})
}

func keys[V any](m map[string]V) []string {
	var all []string
	for k := range m {
		all = append(all, k)
	}
	slices.Sort(all)
	return all
}

// places returns the addresses that have a file's blocks, and fails the test unless each block has
// so many copies.
func (h *hadoop) places(path string, copies int) []string {
	h.t.Helper()
	var blocks [][2]any
	h.must(http.MethodGet, hdfs, "blocks/"+path, nil, &blocks)
	var all []string
	for _, b := range blocks {
		at, _ := b[1].([]any)
		if len(at) != copies {
			h.t.Errorf("block %v of %s is on %v, not on %d nodes", b[0], path, at, copies)
		}
		for _, a := range at {
			all = append(all, fmt.Sprint(a))
		}
	}
	if len(blocks) < 5 {
		h.t.Errorf("%s has %d blocks", path, len(blocks))
	}
	slices.Sort(all)
	return slices.Compact(all)
}

// count has the words of a file counted by the node managers, and compares the result.
func (h *hadoop) count(text []byte, path string) {
	h.t.Helper()
	var job map[string]any
	h.must(http.MethodPost, yarn, "jobs", fmt.Appendf(nil, `{"input": "/%s", "output": "/counts/%[1]s"}`, path), &job)
	h.t.Logf("job %v: %v words, %v of %v maps where their block is, on %v", job["job"], job["words"], job["maps_where_their_block_is"],
		job["maps"], job["nodes"])
	if on, _ := job["nodes"].([]any); len(on) < 2 || job["maps_where_their_block_is"] == 0.0 {
		h.t.Errorf("the job was %v", job)
	}
	got, err := h.http(h.Context(), http.MethodGet, hdfs, "files/counts/"+path, nil)
	if err != nil {
		h.t.Fatal(err)
	}
	counts := map[string]int{}
	for word := range strings.FieldsSeq(string(text)) {
		counts[word]++
	}
	var want strings.Builder
	for _, word := range keys(counts) {
		fmt.Fprintf(&want, "%s\t%d\n", word, counts[word])
	}
	if string(got) != want.String() {
		h.t.Errorf("the words of %s are counted as\n%s\nnot\n%s", path, got, want.String())
	}
}

// client writes a value into the table and reads it, and reads a file. What fails is
// tried again for a while, as clients of Hadoop do.
func (h *hadoop) client(path string, text []byte) func(context.Context) error {
	return func(ctx context.Context) error {
		h.mu.Lock()
		h.asked++
		key, value := fmt.Sprintf("key%d", h.asked%50), fmt.Sprintf("value%d-%d", h.asked, rand.Int())
		h.tried[key] = value
		h.mu.Unlock()
		var errs []error
		for end := time.Now().Add(30 * time.Second); time.Now().Before(end) && ctx.Err() == nil; {
			// Keys are shared by the clients in turns of 50: no two write one at a time.
			_, err := h.http(ctx, http.MethodPut, hbase, "table/"+key, []byte(value))
			var got []byte
			if err == nil {
				h.mu.Lock()
				h.written[key] = value
				h.mu.Unlock()
				got, err = h.http(ctx, http.MethodGet, hbase, "table/"+key, nil)
			}
			if err == nil && string(got) != value {
				return fmt.Errorf("%s is %s, not %s", key, got, value)
			}
			if err == nil {
				got, err = h.http(ctx, http.MethodGet, hdfs, "files/"+path, nil)
			}
			if err == nil && !bytes.Equal(got, text) {
				return fmt.Errorf("%s has %d bytes, not %d", path, len(got), len(text))
			}
			if err == nil {
				return nil
			}
			errs = append(errs, err)
			select {
			case <-ctx.Done():
			case <-time.After(100 * time.Millisecond):
			}
		}
		return errors.Join(errs...)
	}
}

// words returns a text of some 40,000 bytes.
func words(seed uint64) []byte {
	r := rand.New(rand.NewPCG(seed, seed))
	var b bytes.Buffer
	for range 800 {
		for range 8 {
			fmt.Fprintf(&b, "word%d ", r.IntN(90))
		}
		b.WriteByte('\n')
	}
	return b.Bytes()
}

// TestHadoop: stand-ins in the shape of the original's hadoop-distributed: the masters
// on one node, the slaves together on all others; grown, a service added, a machine lost
// and replaced, shrunk, configured in turn, while clients read a file and write into a table.
func TestHadoop(t *testing.T) {
	whenEvery(t)
	onEach(t, 8, func(t *testing.T, s *installation) {
		s.importExample("hadoop-shape", "services", "clustertemplates")
		for name, path := range map[string]string{"scripts/hadoop-shape.sh": "hadoop-shape.sh", "archives/hadoop-shape": "programs"} {
			path, err := filepath.Abs("../../examples/hadoop-shape/" + path)
			if err != nil {
				t.Fatal(err)
			}
			s.Must("resource", "upload", "automator/shell/"+name, path, "--activate")
		}
		s.create("big", "hadoop-shape", 5)
		masters := []string{"base", "hadoop-hdfs-namenode", "hadoop-yarn-resourcemanager", "hbase-master", "zookeeper-server"}
		slaves := []string{"base", "hadoop-hdfs-datanode", "hadoop-yarn-nodemanager", "hbase-regionserver"}
		layout := func(nodes int) {
			t.Helper()
			all, of := s.nodes("big", "base"), map[string]int{}
			for _, n := range all {
				of[strings.Join(slices.Sorted(slices.Values(n.Services)), " ")]++
			}
			if len(all) != nodes || of[strings.Join(masters, " ")] != 1 || of[strings.Join(slaves, " ")] != nodes-1 {
				t.Errorf("the layout is %v", of)
			}
		}
		layout(5)
		h := &hadoop{installation: s, t: t, master: addressOf(s.nodes("big", "hadoop-hdfs-namenode")[0]), written: map[string]string{},
			tried: map[string]string{}}
		h.whole("four slaves")
		first := words(1)
		h.must(http.MethodPut, hdfs, "files/first", first, nil)
		h.whole("two copies of the first file")
		h.places("first", 2)
		h.count(first, "first")

		f := clients(t, 2, h.client("first", first))
		f.none("grow by two", func() { s.Must("cluster", "grow", "big", "--nodes", "2", "--yes") })
		layout(7)
		h.whole("six slaves")
		second := words(2)
		h.must(http.MethodPut, hdfs, "files/second", second, nil)
		h.whole("two copies of the second file")
		if at := h.places("second", 2); !slices.ContainsFunc(s.nodes("big", "base")[5:],
			func(n model.Node) bool { return slices.Contains(at, addressOf(n)) }) {
			t.Errorf("the new nodes have no blocks: they are on %v", at)
		}
		h.count(second, "second")

		f.none("a service added", func() { s.Must("cluster", "add-services", "big", "hadoop-mapreduce-historyserver", "--yes") })
		masters = slices.Sorted(slices.Values(append(masters, "hadoop-mapreduce-historyserver")))
		layout(7)
		h.whole("six slaves still")
		h.count(first, "first")
		var history []any
		if h.must(http.MethodGet, "10020", "", nil, &history); len(history) != 1 {
			t.Errorf("the history is %v", history)
		}

		lost := s.nodes("big", "hadoop-hdfs-datanode")[0]
		f.none("a machine lost, its node replaced", func() {
			s.Must("cluster", "pause-recovery", "big", "--reason", "it is replaced by hand")
			found := s.lose(lost)
			f.quiet()
			found()
			s.Must("node", "replace", "big", lost.ID, "--yes")
			s.Must("cluster", "resume-recovery", "big")
		})
		h.whole("six slaves, one new")
		f.none("shrink by two", func() { s.Must("cluster", "shrink", "big", "--nodes", "2", "--yes") })
		layout(5)
		h.whole("four slaves again")
		more := filepath.Join(s.Dir, "more.yaml")
		if err := os.WriteFile(more, []byte("hadoop: {hdfs_site: {dfs.replication: 3}}\n"), 0o600); err != nil {
			t.Fatal(err)
		}
		f.none("configure, and restart one after the other", func() {
			s.Must("cluster", "configure", "big", "--config", more, "--no-restart", "--yes")
			s.plan("big", "rolling-restart")
		})
		h.whole("three copies of all")
		f.end()
		h.places("first", 3)
		h.places("second", 3)
		h.count(second, "second")
		if got, err := h.http(s.Context(), http.MethodGet, hdfs, "files/second", nil); err != nil || !bytes.Equal(got, second) {
			t.Errorf("the second file has %d bytes, not %d: %v", len(got), len(second), err)
		}
		for key, value := range h.written {
			if got, err := h.http(s.Context(), http.MethodGet, hbase, "table/"+key, nil); err != nil ||
				string(got) != value && string(got) != h.tried[key] {
				t.Errorf("%s is %s, not %s: %v", key, got, value, err)
			}
		}
		t.Logf("%d values were written", h.asked)
		s.Must("cluster", "delete", "big", "--yes")
		s.nothingLeft(t, "/opt/hadoop-shape")
	})
}

// nothingLeft checks that a deleted cluster has left no container, and on machines of the
// inventory neither a claim nor a folder.
func (s *installation) nothingLeft(t *testing.T, folder string) {
	t.Helper()
	if s.engine != nil {
		if n, err := s.engine.Kill(s.Context(), "coopr.cluster"); err != nil || n > 0 {
			t.Errorf("%d containers are left: %v", n, err)
		}
		return
	}
	for address, m := range s.machines {
		if out, err := m.Run(s.Context(), "/bin/sh", "-c", "ls -d "+folder+" /var/lib/coopr/claim.json 2>/dev/null; pgrep -af '^python3 .*"+
			folder+"/' || true"); err != nil || out != "" {
			t.Errorf("left on %s: %s %v", address, out, err)
		}
	}
}
