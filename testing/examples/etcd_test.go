package examples

import (
	"bytes"
	"context"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/coopr/coopr/engine/model"
)

// etcd sends a request to a member through its JSON gateway.
func etcd(ctx context.Context, address, what string, in any, out any) error {
	ctx, cancel := context.WithTimeout(ctx, 5*time.Second)
	defer cancel()
	body, err := json.Marshal(in)
	if err != nil {
		return err
	}
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, "http://"+address+":2379/v3/"+what, bytes.NewReader(body))
	if err != nil {
		return err
	}
	transport := &http.Transport{DisableKeepAlives: true}
	defer transport.CloseIdleConnections()
	resp, err := transport.RoundTrip(req)
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	if resp.StatusCode != http.StatusOK {
		return fmt.Errorf("%s of %s: status %d", what, address, resp.StatusCode)
	}
	return json.NewDecoder(resp.Body).Decode(out)
}

// TestEtcd: a quorum of Debian's packages; grown, restarted in turn, shrunk, and a
// member lost and replaced, while clients write: a client without an answer tries another member.
func TestEtcd(t *testing.T) {
	whenEvery(t)
	onEach(t, 6, func(t *testing.T, s *installation) {
		s.importExample("etcd", "services", "clustertemplates")
		s.create("quorum", "etcd", 3)
		var members atomic.Pointer[[]model.Node]
		// whole awaits that the members are the nodes, and all of them answer.
		whole := func(when string) {
			t.Helper()
			list := s.nodes("quorum", "etcd")
			members.Store(&list)
			s.Await(when, func() error {
				for _, n := range list {
					var found struct {
						Members []struct{ PeerURLs []string }
					}
					if err := etcd(s.Context(), addressOf(n), "cluster/member/list", struct{}{}, &found); err != nil {
						return err
					}
					if len(found.Members) != len(list) {
						return fmt.Errorf("%s knows %v", addressOf(n), found.Members)
					}
				}
				return nil
			})
		}
		whole("three members")
		var written atomic.Int64
		f := clients(t, 2, func(ctx context.Context) error {
			var errs []error
			key := base64.StdEncoding.EncodeToString(fmt.Appendf(nil, "/written/%d", written.Add(1)))
			for end := time.Now().Add(20 * time.Second); time.Now().Before(end) && ctx.Err() == nil; {
				for _, n := range *members.Load() {
					err := etcd(ctx, addressOf(n), "kv/put", map[string]string{"key": key, "value": key}, &struct{}{})
					if err == nil {
						return nil
					}
					errs = append(errs, err)
				}
			}
			return errors.Join(errs...)
		})
		f.none("grow by two", func() { s.Must("cluster", "grow", "quorum", "--nodes", "2", "--yes") })
		whole("five members")
		// began returns when each member's process began.
		began := func() map[string]string {
			at := map[string]string{}
			for _, n := range *members.Load() {
				text, err := get(s.Context(), "http://"+addressOf(n)+":2379/metrics")
				if err != nil {
					t.Fatal(err)
				}
				_, rest, _ := strings.Cut(text, "\nprocess_start_time_seconds ")
				at[addressOf(n)], _, _ = strings.Cut(rest, "\n")
			}
			return at
		}
		before := began()
		f.none("restart, one after the other", func() { s.plan("quorum", "restart-servers") })
		for address, at := range began() {
			if at == "" || at == before[address] {
				t.Errorf("%s was not restarted: it began at %q", address, at)
			}
		}
		f.none("shrink by two", func() { s.Must("cluster", "shrink", "quorum", "--nodes", "2", "--yes") })
		whole("three members again")
		lost := s.nodes("quorum", "etcd")[0]
		f.none("a member lost, its node replaced", func() {
			found := s.lose(lost)
			f.quiet()
			found()
			s.Must("node", "replace", "quorum", lost.ID, "--yes")
		})
		whole("three members, one new")
		f.end()
		var all struct {
			Count string
		}
		if err := etcd(s.Context(), addressOf(s.nodes("quorum", "etcd")[0]), "kv/range", map[string]any{
			"key": base64.StdEncoding.EncodeToString([]byte("/written/")), "range_end": base64.StdEncoding.EncodeToString([]byte("/written0")),
			"count_only": true,
		}, &all); err != nil {
			t.Fatal(err)
		}
		t.Logf("%d writes were asked for, %s are there", written.Load(), all.Count)
		var there int64
		// The last of each client may have been broken off by the end of the test.
		if fmt.Sscan(all.Count, &there); there < written.Load()-2 {
			t.Error("writes are lost")
		}
		s.Must("cluster", "delete", "quorum", "--yes")
	})
}
