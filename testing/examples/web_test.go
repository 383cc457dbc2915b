package examples

import (
	"context"
	"encoding/json"
	"fmt"
	"testing"
)

// page is what the example's web servers show.
type page struct {
	Host, Greeting string
	Visit          int
	Edition        int   // once it is upgraded
	Began          int64 // once it is upgraded: when its server was started
}

// page asks for the example's page.
func (s *installation) page(ctx context.Context, url string) (p page, err error) {
	text, err := get(ctx, url)
	if err == nil {
		err = json.Unmarshal([]byte(text), &p)
	}
	if err == nil && (p.Host == "" || p.Visit == 0) {
		err = fmt.Errorf("the page is %.200s", text)
	}
	return p, err
}

// TestWeb: a balancer, web servers and a database of Debian's packages; grown,
// configured, upgraded, restarted in turn, shrunk, and a web server lost, while
// clients keep coming through the balancer. CI leaves the restarts and the loss out.
func TestWeb(t *testing.T) {
	test := func(t *testing.T, s *installation) {
		s.importExample("web", "services", "clustertemplates")
		s.create("shop", "web", 4)
		s.login("shop", s.nodes("shop", "web-app")[0])
		url := "http://" + addressOf(s.nodes("shop", "web-balancer")[0]) + "/"
		first, err := s.page(s.Context(), url)
		if err != nil || first.Greeting != "Welcome" {
			t.Fatalf("the first page: %+v %v", first, err)
		}
		f := clients(t, 2, func(ctx context.Context) error {
			_, err := s.page(ctx, url)
			return err
		})
		// all waits for a page of every web server, and of no other, and returns the latest
		// page of each.
		all := func(when string, greeting string) map[string]page {
			t.Helper()
			var seen map[string]page
			hosts := map[string]bool{}
			for _, n := range s.nodes("shop", "web-app") {
				hosts[n.Hostname] = true
			}
			s.Await(when, func() error {
				seen = map[string]page{}
				for range 4 * len(hosts) {
					p, err := s.page(s.Context(), url)
					if err != nil {
						return err
					}
					if p.Greeting != greeting {
						return fmt.Errorf("%s greets with %s", p.Host, p.Greeting)
					}
					seen[p.Host] = p
				}
				if len(seen) != len(hosts) {
					return fmt.Errorf("there are %v, seen was %v", hosts, seen)
				}
				return nil
			})
			return seen
		}
		all("pages of two web servers", "Welcome")
		f.none("grow by one, its install interrupted", func() {
			s.interrupted("shop", func() { s.Must("cluster", "grow", "shop", "--nodes", "1", "--yes") })
		})
		all("pages of three web servers", "Welcome")
		s.agree("after growing", "shop")
		f.none("configure", func() { s.Must("cluster", "configure", "shop", "--set", `web.greeting=It's "new"`, "--yes") })
		all("the new greeting", `It's "new"`)
		s.redefine("web/services/web-app.yaml", "answer = '200 OK', {'host': socket.gethostname()}",
			"answer = '200 OK', {'host': socket.gethostname(), 'edition': 2, 'began': int(os.path.getmtime('/run/web-app.pid'))}")
		f.none("upgrade, node by node", func() { s.Must("cluster", "upgrade", "shop", "web-app", "--yes") })
		before := all("pages of three upgraded web servers", `It's "new"`)
		for host, p := range before {
			if p.Edition != 2 || p.Began == 0 {
				t.Errorf("the upgraded page of %s: %+v", host, p)
			}
		}
		if every {
			f.none("restart, one after the other", func() { s.plan("shop", "restart-apps") })
			for host, p := range all("pages of three restarted web servers", `It's "new"`) {
				if p.Began <= before[host].Began {
					t.Errorf("the server of %s was not restarted: %+v", host, p)
				}
			}
		}
		f.none("shrink by one", func() { s.Must("cluster", "shrink", "shop", "--nodes", "1", "--yes") })
		all("pages of two web servers again", `It's "new"`)
		s.agree("after shrinking", "shop")
		if every {
			lost := s.nodes("shop", "web-app")[0]
			f.during("a machine lost, its node replaced", func() {
				found := s.lose(lost)
				f.quiet()
				found()
				s.Must("node", "replace", "shop", lost.ID, "--yes")
			})
			all("pages of two web servers, one new", `It's "new"`)
			s.agree("after replacing", "shop")
		}
		f.end()
		last, err := s.page(s.Context(), url)
		if err != nil || last.Visit < f.asked/2 {
			t.Errorf("after %d requests: %+v %v", f.asked, last, err)
		}
		s.Must("cluster", "delete", "shop", "--yes")
		if text, err := get(s.Context(), url); err == nil {
			t.Errorf("a deleted cluster answers: %s", text)
		}
		s.agree("after deleting")
	}
	onEach(t, 6, test)
	onHosts(t, 6, test)
}
