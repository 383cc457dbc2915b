package examples

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/coopr/coopr/engine/model"
)

// redis asks one server one thing and returns the answer's lines.
func redis(ctx context.Context, address, password string, command ...string) ([]string, error) {
	return redisAll(ctx, address, password, command)
}

// redisAll asks one server things one after the other and returns the last answer.
func redisAll(ctx context.Context, address, password string, commands ...[]string) ([]string, error) {
	ctx, cancel := context.WithTimeout(ctx, 3*time.Second)
	defer cancel()
	c, err := new(net.Dialer).DialContext(ctx, "tcp", address)
	if err != nil {
		return nil, err
	}
	defer c.Close()
	stop := context.AfterFunc(ctx, func() { c.Close() })
	defer stop()
	r := bufio.NewReader(c)
	if password != "" {
		commands = append([][]string{{"AUTH", password}}, commands...)
	}
	var answer []string
	for _, words := range commands {
		text := fmt.Sprintf("*%d\r\n", len(words))
		for _, w := range words {
			text += fmt.Sprintf("$%d\r\n%s\r\n", len(w), w)
		}
		if _, err := io.WriteString(c, text); err != nil {
			return nil, err
		}
		if answer, err = reply(r); err != nil {
			return nil, fmt.Errorf("%s: %s: %w", address, words[0], err)
		}
	}
	return answer, nil
}

// reply reads an answer: what lists hold, one after the other.
func reply(r *bufio.Reader) ([]string, error) {
	line, err := r.ReadString('\n')
	if err != nil {
		return nil, err
	}
	line = strings.TrimRight(line, "\r\n")
	kind, text := line[:min(1, len(line))], line[min(1, len(line)):]
	switch kind {
	case "-":
		return nil, errors.New(text)
	case "+", ":":
		return []string{text}, nil
	}
	n, err := strconv.Atoi(text)
	if err != nil || n < 0 {
		return nil, err
	}
	if kind == "$" {
		b := make([]byte, n+2)
		if _, err := io.ReadFull(r, b); err != nil {
			return nil, err
		}
		return []string{string(b[:n])}, nil
	}
	var all []string
	for range n {
		more, err := reply(r)
		if err != nil {
			return nil, err
		}
		all = append(all, more...)
	}
	return all, nil
}

const redisPassword = "change-me"

// primary returns the address of a cluster's primary, as its sentinels report it.
func primary(ctx context.Context, nodes []model.Node) (string, error) {
	var errs []error
	for _, n := range nodes {
		answer, err := redis(ctx, addressOf(n)+":26379", "", "SENTINEL", "get-master-addr-by-name", "main")
		if err == nil && len(answer) == 2 {
			return answer[0], nil
		}
		errs = append(errs, err)
	}
	return "", fmt.Errorf("no sentinel knows: %w", errors.Join(errs...))
}

// TestRedis: a primary, replicas and sentinels of Debian's packages; grown,
// configured, restarted in turn, its primary lost and replaced, shrunk, while
// clients write like those of sentinels: a client that is refused looks up the primary again.
func TestRedis(t *testing.T) {
	whenEvery(t)
	test := func(t *testing.T, s *installation) {
		s.importExample("redis", "services", "clustertemplates")
		s.create("cache", "redis", 3)
		var members atomic.Pointer[[]model.Node]
		servers := func() []model.Node {
			list := s.nodes("cache", "redis-server")
			members.Store(&list)
			return list
		}
		servers()
		// whole awaits that there is one primary, with all others as its replicas.
		whole := func(when string) (main string) {
			t.Helper()
			nodes := servers()
			s.Await(when, func() (err error) {
				if main, err = primary(s.Context(), nodes); err != nil {
					return err
				}
				info, err := redis(s.Context(), main+":6379", redisPassword, "INFO", "replication")
				if err != nil {
					return err
				}
				if want := fmt.Sprintf("connected_slaves:%d\r", len(nodes)-1); !strings.Contains(info[0], want) ||
					strings.Count(info[0], "state=online") != len(nodes)-1 {
					return fmt.Errorf("%s says %s", main, info[0])
				}
				for _, n := range nodes {
					known, err := redis(s.Context(), addressOf(n)+":26379", "", "SENTINEL", "CKQUORUM", "main")
					if err != nil || !strings.Contains(known[0], fmt.Sprintf("%d usable Sentinels", len(nodes))) {
						return fmt.Errorf("the sentinel of %s: %v %v", addressOf(n), known, err)
					}
				}
				return nil
			})
			return main
		}
		whole("a primary and two replicas")
		var written atomic.Int64
		f := clients(t, 2, func(ctx context.Context) error {
			var errs []error
			// A write that is refused, or not answered, is tried again for a while.
			for end := time.Now().Add(20 * time.Second); time.Now().Before(end) && ctx.Err() == nil; {
				// A value counts as written once a replica has it, too.
				main, err := primary(ctx, *members.Load())
				var copies []string
				if err == nil {
					copies, err = redisAll(ctx, main+":6379", redisPassword, []string{"INCR", "writes"}, []string{"WAIT", "1", "1000"})
				}
				if err == nil && copies[0] == "0" {
					err = fmt.Errorf("%s: no replica has it", main)
				}
				if err == nil {
					written.Add(1)
					return nil
				}
				errs = append(errs, err)
				time.Sleep(50 * time.Millisecond)
			}
			return errors.Join(errs...)
		})
		// runs returns the run id of each server's present process.
		runs := func() map[string]string {
			t.Helper()
			ids := map[string]string{}
			for _, n := range servers() {
				info, err := redis(s.Context(), addressOf(n)+":6379", redisPassword, "INFO", "server")
				if err != nil {
					t.Fatal(err)
				}
				_, rest, _ := strings.Cut(info[0], "\nrun_id:")
				ids[addressOf(n)], _, _ = strings.Cut(rest, "\r")
			}
			return ids
		}
		restarted := func(what string, before map[string]string) {
			t.Helper()
			for address, id := range runs() {
				if id == "" || id == before[address] {
					t.Errorf("%s: %s was not restarted: its run is %q", what, address, id)
				}
			}
		}
		f.none("grow by two", func() { s.Must("cluster", "grow", "cache", "--nodes", "2", "--yes") })
		whole("four replicas")
		s.agree("after growing", "cache")
		f.none("configure", func() { s.Must("cluster", "configure", "cache", "--set", "redis.maxmemory=100mb", "--yes") })
		for _, n := range servers() {
			if got, err := redis(s.Context(), addressOf(n)+":6379", redisPassword, "CONFIG", "GET", "maxmemory"); err != nil ||
				!slices.Contains(got, "104857600") {
				t.Errorf("%s: %v %v", addressOf(n), got, err)
			}
		}
		whole("all five")
		before := runs()
		f.none("restart, one after the other", func() { s.plan("cache", "restart-servers") })
		restarted("the plan", before)
		whole("all five again")
		before = runs()
		s.redefine("redis/services/redis-server.yaml", "appendonly yes\n", "appendonly yes\n          maxmemory-policy allkeys-lru\n")
		f.none("upgrade, node by node", func() { s.Must("cluster", "upgrade", "cache", "redis-server", "--yes") })
		for _, n := range servers() {
			if got, err := redis(s.Context(), addressOf(n)+":6379", redisPassword, "CONFIG", "GET", "maxmemory-policy"); err != nil ||
				!slices.Contains(got, "allkeys-lru") {
				t.Errorf("%s: %v %v", addressOf(n), got, err)
			}
		}
		restarted("the upgrade", before)
		whole("all five upgraded")
		f.none("shrink by two", func() { s.Must("cluster", "shrink", "cache", "--nodes", "2", "--yes") })
		main := whole("two replicas again")
		s.agree("after shrinking", "cache")
		i := slices.IndexFunc(servers(), func(n model.Node) bool { return addressOf(n) == main })
		lost := servers()[i]
		f.during("the primary lost, its node replaced", func() {
			found := s.lose(lost)
			s.Await("another primary", func() error {
				now, err := primary(s.Context(), slices.DeleteFunc(servers(), func(n model.Node) bool { return n.ID == lost.ID }))
				if err == nil && now == main {
					err = fmt.Errorf("it is %s still", main)
				}
				return err
			})
			found()
			s.Must("node", "replace", "cache", lost.ID, "--yes")
		})
		main = whole("two replicas, one new")
		s.agree("after replacing", "cache")
		f.end()
		got, err := redis(s.Context(), main+":6379", redisPassword, "GET", "writes")
		if err != nil {
			t.Fatal(err)
		}
		t.Logf("%d writes were acknowledged, %s are there", written.Load(), got[0])
		if there, err := strconv.ParseInt(got[0], 10, 64); err != nil || there < written.Load() {
			t.Errorf("acknowledged writes are lost: %v", err)
		}
		s.Must("cluster", "delete", "cache", "--yes")
		s.agree("after deleting")
	}
	onEach(t, 6, test)
	onHosts(t, 6, test)
}
