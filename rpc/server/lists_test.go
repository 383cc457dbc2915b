package server_test

import (
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"net/url"
	"slices"
	"strings"
	"testing"

	"github.com/coopr/coopr/rpc/api"
	"github.com/coopr/coopr/rpc/listing"
	"github.com/coopr/coopr/rpc/server"
	"github.com/coopr/coopr/rpc/server/apitest"
)

// otherLists answer with arrays and do not have the parameters of lists: they answer as the scheduler of the DC/OS SDK does, are about one
// thing, or keep their order because it is the answer.
var otherLists = []string{
	"listConfigurations", "getTargetConfigurationID", "listEndpoints", "listPlans", "listPods", "getPodInfo", "getFrameworkID", "listProperties",
	"diffCluster", "listClusterServices", "explainObject", "listSigningKeys", "watchEvents", "search",
}

func TestEveryListHasTheParameters(t *testing.T) {
	raw, err := server.Document()
	if err != nil {
		t.Fatal(err)
	}
	var doc struct {
		Paths map[string]struct {
			Get *struct {
				ID         string `json:"operationId"`
				Parameters []struct{ Name string }
				Responses  map[string]struct {
					Content map[string]struct{ Schema struct{ Type any } }
				}
			}
		}
	}
	if err := json.Unmarshal(raw, &doc); err != nil {
		t.Fatal(err)
	}
	lists := 0
	for path, item := range doc.Paths {
		if item.Get == nil || !strings.Contains(fmt.Sprint(item.Get.Responses["200"].Content), "array") {
			continue
		}
		if slices.Contains(otherLists, item.Get.ID) {
			continue
		}
		lists++
		for _, want := range listing.Parameters {
			if !slices.ContainsFunc(item.Get.Parameters, func(p struct{ Name string }) bool { return p.Name == want }) {
				t.Errorf("%s (%s) has no parameter %s", path, item.Get.ID, want)
			}
		}
	}
	if lists < 40 {
		t.Errorf("only %d lists were found", lists)
	}
}

// clusterNames returns the names in an answer.
func clusterNames(t testing.TB, a answer) string {
	t.Helper()
	var rows []api.ClusterSummary
	a.into(t, &rows)
	var out []string
	for _, r := range rows {
		out = append(out, r.Name)
	}
	return strings.Join(out, " ")
}

// newShop returns an agent with the template "shop", and room for many clusters.
func newShop(t testing.TB) *world {
	t.Helper()
	w := newWorld(t)
	w.must(200, apitest.Super, "PUT", "/v1/tenants/acme", `{"maxClusters":1000,"maxNodes":1000}`)
	w.template()
	return w
}

func TestLists(t *testing.T) {
	w := newShop(t)
	for i, name := range []string{"web-10", "web-9", "db"} {
		w.cluster(name, fmt.Sprint(i+1))
	}
	w.must(202, apitest.Admin, "POST", "/v1/clusters", `{"name":"hidden","clusterTemplate":"shop","numMachines":1,"labels":{"team":"red"}}`)
	for _, c := range []struct{ token, query, names, total string }{
		{apitest.User, "", "web-10 web-9 db", "3"}, // as it was before
		{apitest.Admin, "", "web-10 web-9 db hidden", "4"},
		{apitest.User, "limit=2", "web-10 web-9", ""},
		{apitest.User, "limit=2&count=true", "web-10 web-9", "3"},
		{apitest.User, "limit=2&sort=name", "db web-9", "3"},
		{apitest.User, "sort=-numNodes", "db web-9 web-10", "3"},
		{apitest.User, "filter=name~WEB&sort=-name", "web-10 web-9", "2"},
		{apitest.User, "filter=numNodes%3D2|3", "web-9 db", "2"},
		{apitest.User, "filter=progress.action%3Dcreate,status%3Dpending&count=true&limit=1", "web-10", "3"},
		{apitest.User, "filter=clusterTemplate.name!%3Dshop", "", "0"},
		{apitest.User, "filter=health%3D", "web-10 web-9 db", "3"},
		{apitest.User, "unhealthy=true&filter=name~web", "", "0"},
		{apitest.User, "status=pending&filter=name~9", "web-9", "1"},
		// Nobody finds out about what they may not see.
		{apitest.User, "filter=name%3Dhidden&count=true", "", "0"},
		{apitest.User, "filter=labels.team%3Dred&count=true", "", "0"},
		{apitest.User, "sort=-id&limit=1", "db", "3"},
		{apitest.Other, "count=true&limit=1", "", "0"},
		{apitest.Admin, "filter=labels.team%3Dred", "hidden", "1"},
	} {
		a := w.must(200, c.token, "GET", "/v1/clusters?"+c.query, "")
		if got := clusterNames(t, a); got != c.names || a.header.Get(api.HeaderTotal) != c.total {
			t.Errorf("%s: %s, total %q; want %s, %q", c.query, got, a.header.Get(api.HeaderTotal), c.names, c.total)
		}
	}
	a := w.must(200, apitest.User, "GET", "/v1/clusters?fields=name,progress.action&limit=1", "")
	if got := strings.TrimSpace(a.body); got != `[{"name":"web-10","progress":{"action":"create"}}]` || a.header.Get(api.HeaderNext) == "" {
		t.Errorf("%s %v", got, a.header)
	}
	next := a.header.Get(api.HeaderNext)
	for _, query := range []string{"cursor=" + next + "&sort=name", "cursor=" + next + "&unhealthy=true", "filter=nothing%3D1", "sort=labels", "limit=x", "offset=1"} {
		w.must(422, apitest.User, "GET", "/v1/clusters?"+query, "")
	}
	w.must(422, apitest.User, "GET", "/v1/nodes?cursor="+next, "")
	w.must(422, apitest.Super, "GET", "/v1/clusters?tenant=acme&filter=nothing%3D1", "")
	if a := w.must(200, apitest.User, "GET", "/v1/clusters?limit=2&count=true&cursor="+next, ""); clusterNames(t, a) != "web-9 db" ||
		a.header.Get(api.HeaderNext) != "" || a.header.Get(api.HeaderTotal) != "3" {
		t.Errorf("%s %v", a.body, a.header)
	}

	// The lists that had pages before.
	for _, c := range []struct{ path, total, first string }{
		{"/v1/nodes?offset=1&limit=2", "6", `"id":"00000002-1000"`},
		{"/v1/nodes?limit=2&sort=-id", "6", `"id":"00000003-1002"`},
		{"/v1/nodes?cluster=db&limit=1&count=false", "", `"id":"00000003-1000"`},
		{"/v1/operations?offset=1&limit=1", "3", `"id":"00000002-001"`},
		{"/v1/operations?limit=1&filter=progress.total!%3D0&sort=cluster", "3", `"id":"00000001-001"`},
		{"/v1/operations/00000003-001/tasks?limit=1&offset=2", "", `"id":"00000003-001/`},
		{"/v1/runs?limit=0", "0", "[]"},
	} {
		a := w.must(200, apitest.User, "GET", c.path, "")
		if !strings.HasPrefix(strings.TrimPrefix(strings.TrimSpace(a.body), "[{"), c.first) || c.total != "" && a.header.Get(api.HeaderTotal) != c.total {
			t.Errorf("%s: total %s, %.100s", c.path, a.header.Get(api.HeaderTotal), a.body)
		}
	}

	// Redacted values are compared as they are answered.
	for query, want := range map[string]string{"filter=name%3Dcloud": "1", "filter=name%3Dx": "0", "sort=-name&limit=1&fields=name": "1"} {
		if got := w.must(200, apitest.User, "GET", "/v1/providers?"+query, "").header.Get(api.HeaderTotal); got != want {
			t.Errorf("providers, %s: %s", query, got)
		}
	}
}

// TestPagesOfEverything reads each long list a page at a time, in both directions, and compares with the whole.
func TestPagesOfEverything(t *testing.T) {
	w := newShop(t)
	var op string
	for i := range 5 {
		_, op = w.cluster(fmt.Sprint("c", i), fmt.Sprint(i+1))
	}
	for _, path := range []string{"/v1/clusters", "/v1/nodes", "/v1/nodes?cluster=c4", "/v1/operations", "/v1/operations/" + op + "/tasks",
		"/v1/services", "/v1/tokens", "/v1/users"} {
		for _, more := range []string{"", "sort=-id", "filter=id!%3D00000003-1001", "sort=status,-id"} {
			named := !strings.HasPrefix(path, "/v1/clusters") && !strings.HasPrefix(path, "/v1/nodes") && !strings.HasPrefix(path, "/v1/operations")
			if named && more != "" || strings.HasPrefix(path, "/v1/nodes") && strings.Contains(more, "status") {
				continue
			}
			at := path + "?"
			if strings.Contains(path, "?") {
				at = path + "&"
			}
			var whole []json.RawMessage
			w.must(200, apitest.Admin, "GET", at+more, "").into(t, &whole)
			var got []json.RawMessage
			for next := ""; ; {
				a := w.must(200, apitest.Admin, "GET", at+more+"&limit=2&cursor="+next, "")
				var page []json.RawMessage
				a.into(t, &page)
				got = append(got, page...)
				if next = a.header.Get(api.HeaderNext); next == "" {
					break
				}
			}
			if fmt.Sprintf("%s", got) != fmt.Sprintf("%s", whole) {
				t.Errorf("%s: %d rows, and %d in pages", at+more, len(whole), len(got))
			}
		}
	}
}

// TestPagesWhileClustersCome creates clusters between the pages. Those from before come once.
func TestPagesWhileClustersCome(t *testing.T) {
	w := newShop(t)
	r := rand.New(rand.NewPCG(1, 2))
	before := map[string]int{}
	for range 12 {
		name := fmt.Sprintf("c%d", r.IntN(1e6))
		w.cluster(name, "1")
		before[name] = 0
	}
	for _, sort := range []string{"", "name", "-name", "-createTime"} {
		for name := range before {
			before[name] = 0
		}
		query := url.Values{"limit": {"3"}, "sort": {sort}}
		for {
			a := w.must(200, apitest.User, "GET", "/v1/clusters?"+query.Encode(), "")
			for _, name := range strings.Fields(clusterNames(t, a)) {
				if _, ok := before[name]; ok {
					before[name]++
				}
			}
			if a.header.Get(api.HeaderNext) == "" {
				break
			}
			query.Set("cursor", a.header.Get(api.HeaderNext))
			if r.IntN(2) == 0 {
				w.cluster(fmt.Sprintf("c%d", 1e6+r.IntN(1e6)), "1")
			}
		}
		for name, n := range before {
			if n != 1 {
				t.Errorf("sort %q: %s came %d times", sort, name, n)
			}
		}
	}
}

func TestSearch(t *testing.T) {
	w := newShop(t)
	w.cluster("shop-a", "2")
	_, op := w.cluster("shop-10", "1")
	w.must(202, apitest.Admin, "POST", "/v1/clusters", `{"name":"secretshop","clusterTemplate":"shop","numMachines":1}`)
	names := func(token, query string) string {
		var found []api.Found
		w.must(200, token, "GET", "/v1/search?"+query, "").into(t, &found)
		var out []string
		for _, f := range found {
			out = append(out, f.Type+":"+f.Name)
		}
		return strings.Join(out, " ")
	}
	task := w.Tasks(op)[0].ID
	for _, c := range []struct{ token, query, want string }{
		{apitest.User, "q=shop&type=cluster,template", "template:shop cluster:shop-a cluster:shop-10"},
		{apitest.User, "q=SHOP-1&type=cluster", "cluster:shop-10"},
		{apitest.User, "q=00000002&type=cluster,operation", "cluster:shop-10 operation:00000002-001"},
		{apitest.User, "q=" + url.QueryEscape(task), "task:" + task},
		{apitest.User, "q=ngin", "service:nginx"},
		{apitest.User, "q=smal&limit=1", "hardwaretype:small"},
		{apitest.User, "q=nothing", ""},
		// A search does not find things that the caller may not see.
		{apitest.User, "q=secretshop", ""},
		{apitest.User, "q=00000003", ""},
		{apitest.Other, "q=shop&type=cluster,node,operation", ""},
		{apitest.Admin, "q=secretshop&type=cluster", "cluster:secretshop"},
		{apitest.User, "q=alice", ""},
		{apitest.Admin, "q=alice&type=user,token", "token:alice"},
	} {
		if got := names(c.token, c.query); got != c.want {
			t.Errorf("%s: %s, not %s", c.query, got, c.want)
		}
	}
	if got := names(apitest.User, "q=00000001-10&type=node"); strings.Count(got, "node:") != 2 {
		t.Errorf("nodes: %s", got)
	}
	for _, bad := range []string{"", "q=%20", "q=x&type=clutser", "q=x&limit=101", "q=" + strings.Repeat("x", 300)} {
		w.must(422, apitest.User, "GET", "/v1/search?"+bad, "")
	}
}
