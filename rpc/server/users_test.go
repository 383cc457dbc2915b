package server_test

import (
	"net/http"
	"slices"
	"strings"
	"testing"

	"github.com/coopr/coopr/engine/model"
	"github.com/coopr/coopr/rpc/api"
	"github.com/coopr/coopr/rpc/server/apitest"
)

const password, otherPassword = "four random words here", "other words of a user"

// login logs a user of the tenant acme in.
func (w *world) login(name, secret string) api.IssuedToken {
	w.t.Helper()
	var t api.IssuedToken
	w.must(201, "", "POST", "/v1/login", `{"tenant":"acme","user":"`+name+`","password":"`+secret+`"}`).into(w.t, &t)
	return t
}

func (w *world) user(by, body string) {
	w.t.Helper()
	w.must(201, by, "POST", "/v1/users", body)
}

func TestLogin(t *testing.T) {
	leader, follower := pair(t)
	worker := stateless(t, leader)
	leader.user(apitest.Admin, `{"name":"ann","role":"user","groups":["devs"],"password":"`+password+`"}`)
	leader.user(apitest.Admin, `{"name":"ci","method":"account"}`)
	leader.user(apitest.Admin, `{"name":"new"}`)
	for name, w := range map[string]*world{"leader": leader, "follower": follower, "worker": worker} {
		s := w.login("ann", password)
		if !s.Session || s.Expires == 0 || s.Renewable <= s.Expires || s.Actor != "ann" || !strings.HasPrefix(s.Secret, "coopr-") {
			t.Errorf("%s: %+v", name, s)
		}
		var self api.Self
		w.must(200, s.Secret, "GET", "/v1/self", "").into(t, &self)
		if self.Role != "user" || len(self.Groups) != 1 || self.Groups[0] != "acme/devs" || !self.Session || self.Expires != s.Expires {
			t.Errorf("%s: %+v", name, self)
		}
		// The refusal does not say what is wrong.
		texts := map[string]bool{}
		for _, body := range []string{
			`{"tenant":"acme","user":"ann","password":"wrong"}`, `{"tenant":"acme","user":"nobody","password":"` + password + `"}`,
			`{"tenant":"main","user":"ann","password":"` + password + `"}`, `{"tenant":"none","user":"ann","password":"` + password + `"}`,
			`{"tenant":"acme","user":"ci","password":"` + password + `"}`, `{"tenant":"acme","user":"new","password":"` + password + `"}`,
			`{"tenant":"acme","user":"bob","password":"` + apitest.User + `"}`,
		} {
			texts[w.must(401, "", "POST", "/v1/login", body).problem(t).Detail] = true
		}
		if len(texts) != 1 {
			t.Errorf("%s: the refusals differ: %v", name, texts)
		}
		w.must(422, "", "POST", "/v1/login", `{"user":"ann"}`)
		w.must(http.StatusRequestEntityTooLarge, "", "POST", "/v1/login", `{"user":"`+strings.Repeat("a", 5000)+`"}`)
		w.must(200, s.Secret, "POST", "/v1/logout", "")
		leader.must(401, s.Secret, "GET", "/v1/self", "")
	}
	leader.must(403, apitest.User, "POST", "/v1/logout", "") // a token is no session
	leader.must(403, apitest.User, "POST", "/v1/self/renew", "")

	s := leader.login("ann", password)
	var renewed model.Token
	leader.must(200, s.Secret, "POST", "/v1/self/renew", "").into(t, &renewed)
	if renewed.Expires < s.Expires || renewed.ID != s.ID {
		t.Errorf("renewed %+v, opened %+v", renewed, s)
	}
	other := leader.login("ann", password)
	leader.must(403, s.Secret, "PUT", "/v1/self/password", `{"old":"wrong","new":"`+otherPassword+`"}`)
	leader.must(422, s.Secret, "PUT", "/v1/self/password", `{"old":"`+password+`","new":"short"}`)
	leader.must(200, s.Secret, "PUT", "/v1/self/password", `{"old":"`+password+`","new":"`+otherPassword+`"}`)
	leader.must(200, s.Secret, "GET", "/v1/self", "")
	leader.must(401, other.Secret, "GET", "/v1/self", "")
	leader.must(401, "", "POST", "/v1/login", `{"tenant":"acme","user":"ann","password":"`+password+`"}`)
	leader.login("ann", otherPassword)
}

// A request that waits ends within about a second of the end or the change of its caller's rights.
func TestUsersRightsEndAtOnce(t *testing.T) {
	for name, change := range map[string]string{"disabled": `{"disabled":true}`, "another role": `{"role":"read"}`, "another group": `{"groups":["ops"]}`,
		"another password": `{"password":"` + otherPassword + `"}`} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t)
			w.user(apitest.Admin, `{"name":"ann","role":"user","groups":["devs"],"password":"`+password+`"}`)
			s := w.login("ann", password)
			r := w.events(s.Secret, "")
			defer r.close()
			w.must(200, apitest.Admin, "PUT", "/v1/users/ann", change)
			for typ := ""; typ != "problem"; { // the stream goes on until the agent notices
				typ, _ = r.next()
			}
		})
	}
}

// A caller creates and changes only users whose rights the caller has, too.
func TestUsersAreManagedFromAbove(t *testing.T) {
	w := newWorld(t)
	w.user(apitest.Admin, `{"name":"ann","role":"admin","password":"`+password+`"}`)
	w.user(apitest.Admin, `{"name":"eve","groups":["editor","devs","devs"]}`)
	w.must(201, apitest.Super, "POST", "/v1/users?tenant=acme", `{"name":"ops","role":"superadmin","groups":["operator"]}`)
	w.must(403, apitest.Admin, "POST", "/v1/users", `{"name":"x","role":"superadmin"}`)
	w.must(403, apitest.Admin, "POST", "/v1/users", `{"name":"x","groups":["operator"]}`)
	w.must(403, apitest.Admin, "PUT", "/v1/users/ops", `{"disabled":true}`)
	w.must(403, apitest.Admin, "DELETE", "/v1/users/ops", "")
	w.must(403, apitest.Admin, "PUT", "/v1/users/ann", `{"password":"`+otherPassword+`"}`) // as powerful as alice
	w.must(403, apitest.Admin, "PUT", "/v1/users/ann", `{"role":"user","password":"`+otherPassword+`"}`)
	w.must(403, apitest.Admin, "PUT", "/v1/users/ann", `{"role":"user"}`)
	w.must(200, apitest.Admin, "PUT", "/v1/users/ann", `{"disabled":true}`)
	w.must(200, apitest.Admin, "PUT", "/v1/users/ann", `{"disabled":false}`)
	ann := w.login("ann", password).Secret
	w.must(422, ann, "PUT", "/v1/users/ann", `{"password":"`+otherPassword+`"}`) // her own: only with the old one
	w.must(403, apitest.Admin, "PUT", "/v1/users/eve", `{"role":"superadmin"}`)
	w.must(200, apitest.Admin, "PUT", "/v1/users/eve", `{"password":"`+otherPassword+`"}`)
	for _, by := range []string{apitest.User, apitest.Guest} {
		w.must(403, by, "GET", "/v1/users", "")
		w.must(404, by, "GET", "/v1/users/ann", "")
		w.must(403, by, "POST", "/v1/users", `{"name":"x"}`)
		w.must(403, by, "PUT", "/v1/users/eve", `{"role":"read"}`)
		w.must(403, by, "DELETE", "/v1/users/eve", "")
	}
	// Bad input.
	for body, path := range map[string]string{
		`{"name":"root"}`: "name", `{"name":"Coopr"}`: "name", `{"name":""}`: "name", `{"name":"a b"}`: "name", `{"name":"x","role":"king"}`: "role",
		`{"name":"x","groups":["viewer"]}`: "groups", `{"name":"x","groups":["a b"]}`: "groups", `{"name":"x","password":"short"}`: "password",
		`{"name":"x","method":"account","password":"` + password + `"}`: "password", `{"name":"x","method":"ldap"}`: "method",
		`{"name":"x","password":"` + strings.Repeat("x", 1025) + `"}`: "password", `{"name":"x","who":"y"}`: "who",
	} {
		p := w.must(422, apitest.Admin, "POST", "/v1/users", body).problem(t)
		if len(p.Errors) != 1 || p.Errors[0].Path != path {
			t.Errorf("%s: %+v", body, p.Errors)
		}
	}
	w.must(409, apitest.Admin, "POST", "/v1/users", `{"name":"ann"}`)
	w.must(409, apitest.Admin, "POST", "/v1/users", `{"name":"Eve"}`)
	w.must(409, apitest.Super, "POST", "/v1/users?tenant=acme", `{"name":"BOB"}`)
	w.must(404, apitest.Admin, "PUT", "/v1/users/nobody", `{"role":"read"}`)
	w.must(404, apitest.Admin, "DELETE", "/v1/users/nobody", "")
	// Sessions can be revoked by others, and a repeated creation has the same answer.
	s := w.login("eve", otherPassword)
	w.must(200, apitest.Admin, "DELETE", "/v1/tokens/"+s.ID, "")
	w.must(401, s.Secret, "GET", "/v1/self", "")
	for range 2 {
		w.must(201, apitest.Admin, "POST", "/v1/users", `{"name":"two","role":"admin"}`, "Coopr-Request-Id: r1")
	}
	// A superadmin of one tenant is no user of another one's name.
	w.must(201, apitest.Super, "POST", "/v1/users", `{"name":"sue","role":"superadmin","password":"`+password+`"}`)
	var sue api.IssuedToken
	w.must(201, "", "POST", "/v1/login", `{"tenant":"main","user":"sue","password":"`+password+`"}`).into(t, &sue)
	w.must(422, sue.Secret, "POST", "/v1/self/tokens?tenant=acme", `{"role":"superadmin"}`)
	w.must(409, sue.Secret, "POST", "/v1/tokens?tenant=acme", `{"actor":"sue","role":"superadmin"}`)
	w.must(201, apitest.Super, "POST", "/v1/users", `{"name":"two"}`) // of the tenant main
	w.must(409, apitest.Super, "PUT", "/v1/users/two", `{"role":"superadmin"}`)
	// bob has a token, and is a user from now on: the token may do what the user may.
	w.user(apitest.Admin, `{"name":"bob","role":"read"}`)
	var self api.Self
	w.must(200, apitest.User, "GET", "/v1/self", "").into(t, &self)
	if self.Role != "read" {
		t.Errorf("bob's old token has the role %s", self.Role)
	}
	w.must(200, apitest.Admin, "DELETE", "/v1/users/bob", "")
	w.must(401, apitest.User, "GET", "/v1/self", "")
	w.must(409, apitest.Admin, "POST", "/v1/users", `{"name":"bob"}`)
	w.must(409, apitest.Admin, "POST", "/v1/tokens", `{"actor":"bob"}`)
}

// Everybody makes tokens of their own, with no more than their own rights.
func TestOwnTokens(t *testing.T) {
	w := newWorld(t)
	w.template()
	w.user(apitest.Admin, `{"name":"ann","role":"user","groups":["devs"],"password":"`+password+`"}`)
	w.user(apitest.Admin, `{"name":"zed","role":"user","groups":["devs"]}`)
	own := func(by, body string) api.IssuedToken {
		t.Helper()
		var out api.IssuedToken
		w.must(201, by, "POST", "/v1/self/tokens", body).into(t, &out)
		return out
	}
	s := w.login("ann", password)
	all := own(s.Secret, `{"description":"laptop"}`)
	reads := own(all.Secret, `{"role":"read","ttl":"12h"}`)
	w.must(403, reads.Secret, "POST", "/v1/self/tokens", `{}`) // no further ones
	w.must(403, all.Secret, "POST", "/v1/self/tokens", `{"role":"admin"}`)
	w.must(422, all.Secret, "POST", "/v1/self/tokens", `{"ttl":"soon","role":"king"}`)
	w.must(422, all.Secret, "POST", "/v1/self/tokens", `{"ttl":"400d"}`)
	w.must(403, apitest.Root, "POST", "/v1/self/tokens", `{}`)

	less := own(s.Secret, `{"role":"user","ttl":"1h"}`)
	for path, body := range map[string]string{"POST /v1/runs": `{"program":"p"}`, "PUT /v1/schedules/s": `{"program":"p","cron":"1 2 * * *"}`,
		"PUT /v1/programs/p": `{}`} {
		method, path, _ := strings.Cut(path, " ")
		if p := w.must(403, less.Secret, method, path, body).problem(t); !strings.Contains(p.Detail, "may do less than ann") {
			t.Errorf("%s: %s", path, p.Detail)
		}
	}
	w.must(200, s.Secret, "DELETE", "/v1/self/tokens/"+less.ID, "")
	const create = `{"name":"shop","clusterTemplate":"shop","numMachines":1}`
	w.must(403, reads.Secret, "POST", "/v1/clusters", create)
	w.must(202, all.Secret, "POST", "/v1/clusters", create)
	// A policy for a group permits nothing to a token with less, and forbids it what it forbids the user.
	w.must(200, apitest.Admin, "PUT", "/v1/policies/devs", `{"name":"devs","text":"@id(\"a\") permit (principal in Group::\"acme/devs\", action == Action::\"delete\", `+
		`resource is Template); @id(\"b\") forbid (principal in Group::\"acme/devs\", action == Action::\"list\", resource is Service);"}`)
	w.must(403, reads.Secret, "DELETE", "/v1/clustertemplates/shop", "")
	for _, token := range []string{s.Secret, all.Secret, reads.Secret} {
		var services []model.Service
		if a := w.ask(token, "GET", "/v1/services", ""); a.status != 403 {
			a.into(t, &services)
			t.Errorf("a token of a user whom a policy forbids it lists %d services", len(services))
		}
	}
	w.must(403, apitest.User, "DELETE", "/v1/clustertemplates/shop", "")
	w.must(200, all.Secret, "DELETE", "/v1/clustertemplates/shop?force=true", "")

	list := func(by string) string {
		var out []model.Token
		w.must(200, by, "GET", "/v1/self/tokens", "").into(t, &out)
		return strings.Join(ids(out), " ")
	}
	sorted := func(ts ...api.IssuedToken) string {
		var out []model.Token
		for _, t := range ts {
			out = append(out, t.Token)
		}
		return strings.Join(ids(out), " ")
	}
	if got, want := list(s.Secret), sorted(s, all, reads); got != want {
		t.Errorf("the session sees %s, not %s", got, want)
	}
	if got, want := list(reads.Secret), sorted(reads); got != want {
		t.Errorf("a token sees %s, not %s", got, want)
	}
	w.must(404, reads.Secret, "DELETE", "/v1/self/tokens/"+all.ID, "")
	w.must(404, apitest.User, "DELETE", "/v1/self/tokens/"+all.ID, "")
	w.must(200, s.Secret, "DELETE", "/v1/self/tokens/"+reads.ID, "")
	for _, gone := range []api.IssuedToken{reads} {
		w.must(401, gone.Secret, "GET", "/v1/self", "")
	}
	w.must(200, all.Secret, "GET", "/v1/self", "")
}

func ids(tokens []model.Token) []string {
	var out []string
	for _, t := range tokens {
		out = append(out, t.ID)
	}
	slices.Sort(out)
	return out
}

// A grant lets others do what its granter may, and no longer than the granter may.
func TestGrants(t *testing.T) {
	w := newWorld(t)
	w.template()
	w.user(apitest.Admin, `{"name":"zed","groups":["oncall"],"password":"`+password+`"}`)
	id, op := w.cluster("shop", "1") // bob's
	zed := w.login("zed", password).Secret
	share := func(by, body string) model.Grant {
		t.Helper()
		var g model.Grant
		w.must(201, by, "POST", "/v1/grants", body).into(t, &g)
		return g
	}
	lists := func(by string, n int) {
		t.Helper()
		var all []api.ClusterSummary
		w.must(200, by, "GET", "/v1/clusters", "").into(t, &all)
		if len(all) != n {
			t.Errorf("%d clusters, not %d", len(all), n)
		}
	}
	for _, by := range []string{apitest.Other, zed} {
		w.must(404, by, "GET", "/v1/clusters/"+id, "")
		lists(by, 0)
	}
	g := share(apitest.User, `{"to":"carol","actions":["read"],"resource":"cluster/shop"}`)
	if g.Resource != "cluster/"+id || g.To != "user/carol" || g.Granter != "bob" || strings.Join(g.Actions, " ") != "list read" || g.Name != "shop" {
		t.Errorf("%+v", g)
	}
	lists(apitest.Other, 1)
	w.must(200, apitest.Other, "GET", "/v1/clusters/"+id, "")
	w.must(200, apitest.Other, "GET", "/v1/operations/"+op, "")
	w.must(200, apitest.Other, "GET", "/v1/nodes/"+id+"-1000", "")
	w.must(403, apitest.Other, "POST", "/v1/operations/"+op+"/pause", "")
	w.must(403, apitest.Other, "POST", "/v1/grants", `{"to":"zed","actions":["read"],"resource":"cluster/shop"}`) // is not handed on
	w.must(404, zed, "GET", "/v1/clusters/"+id, "")
	var can api.Permission
	w.must(200, apitest.Other, "GET", "/v1/can-i?action=read&resource=cluster/shop", "").into(t, &can)
	if !can.Allowed || can.Rule != "a grant" || len(can.Grants) != 1 || can.Grants[0] != g.ID {
		t.Errorf("%+v", can)
	}

	share(apitest.User, `{"to":"group/oncall","actions":["operate"],"resource":"cluster/`+id+`","ttl":"2h"}`)
	w.must(200, zed, "GET", "/v1/clusters/"+id, "")
	w.must(200, zed, "POST", "/v1/operations/"+op+"/pause", "")
	w.must(200, zed, "POST", "/v1/operations/"+op+"/resume", "")
	w.must(403, zed, "DELETE", "/v1/clusters/"+id, "")
	// A token of zed's that may do less gets nothing by zed's grants.
	var less api.IssuedToken
	w.must(201, zed, "POST", "/v1/self/tokens", `{"role":"user"}`).into(t, &less)
	w.must(404, less.Secret, "GET", "/v1/clusters/"+id, "")
	// What a policy forbids stays forbidden.
	w.must(200, apitest.Admin, "PUT", "/v1/policies/p", `{"name":"p","text":"@id(\"p\") forbid (principal == User::\"zed\", action == Action::\"operate\", resource);"}`)
	w.must(403, zed, "POST", "/v1/operations/"+op+"/pause", "")
	w.must(200, apitest.Admin, "DELETE", "/v1/policies/p", "")

	list := func(by string, n int) {
		t.Helper()
		var all []model.Grant
		w.must(200, by, "GET", "/v1/grants", "").into(t, &all)
		if len(all) != n {
			t.Errorf("%d grants, not %d: %+v", len(all), n, all)
		}
	}
	list(apitest.User, 2)
	list(apitest.Other, 1)
	list(zed, 1)
	list(apitest.Admin, 2)
	list(apitest.Guest, 0)
	w.must(403, apitest.Other, "DELETE", "/v1/grants/"+g.ID, "")
	var reads api.IssuedToken
	w.must(201, apitest.User, "POST", "/v1/self/tokens", `{"role":"read"}`).into(t, &reads)
	w.must(404, reads.Secret, "DELETE", "/v1/grants/"+g.ID, "")
	w.must(404, apitest.Guest, "DELETE", "/v1/grants/"+g.ID, "")
	w.must(200, apitest.Admin, "DELETE", "/v1/grants/"+g.ID, "")
	lists(apitest.Other, 0)

	// Bad input, and more than the caller may.
	for body, path := range map[string]string{
		`{"to":"nobody","actions":["read"],"resource":"cluster/shop"}`: "to", `{"to":"group/none","actions":["read"],"resource":"cluster/shop"}`: "to",
		`{"to":"root","actions":["read"],"resource":"cluster/shop"}`: "to", `{"to":"team/x","actions":["read"],"resource":"cluster/shop"}`: "to",
		`{"to":"zed","actions":["grant"],"resource":"cluster/shop"}`: "actions", `{"to":"zed","actions":[],"resource":"cluster/shop"}`: "actions",
		`{"to":"zed","actions":["raed"],"resource":"cluster/shop"}`: "actions", `{"to":"zed","actions":["execute"],"resource":"cluster/shop"}`: "actions",
		`{"to":"zed","actions":["read"],"resource":"shop"}`: "resource", `{"to":"zed","actions":["read"],"resource":"mesh/x"}`: "resource",
		`{"to":"zed","actions":["read"],"resource":"cluster/shop","ttl":"soon"}`: "ttl",
	} {
		p := w.must(422, apitest.User, "POST", "/v1/grants", body).problem(t)
		if len(p.Errors) != 1 || p.Errors[0].Path != path {
			t.Errorf("%s: %+v", body, p.Errors)
		}
	}
	w.must(404, apitest.User, "POST", "/v1/grants", `{"to":"zed","actions":["read"],"resource":"cluster/other"}`)
	w.must(403, apitest.User, "POST", "/v1/grants", `{"to":"zed","actions":["update"],"resource":"template/shop"}`)
	w.must(201, apitest.Admin, "POST", "/v1/grants", `{"to":"zed","actions":["update"],"resource":"template/shop"}`)
	w.must(200, zed, "PUT", "/v1/clustertemplates/shop", shop)

	// The granter loses the right, and so does who got it.
	w.user(apitest.Admin, `{"name":"bob","role":"user"}`)
	w.must(200, zed, "GET", "/v1/clusters/"+id, "")
	w.must(200, apitest.Admin, "PUT", "/v1/users/bob", `{"disabled":true}`)
	w.must(404, zed, "GET", "/v1/clusters/"+id, "")
	w.must(200, apitest.Admin, "PUT", "/v1/users/bob", `{"disabled":false}`)
	w.must(200, zed, "GET", "/v1/clusters/"+id, "")
}

// A login by a directory or an identity provider that nobody has configured fails as with a wrong password. A browser is sent
// to its own machine only.
func TestUnknownMethods(t *testing.T) {
	w := newWorld(t)
	w.user(apitest.Admin, `{"name":"ann","password":"`+password+`"}`)
	w.must(401, "", "POST", "/v1/login", `{"tenant":"acme","method":"corp","user":"ann","password":"`+password+`"}`)
	w.must(201, "", "POST", "/v1/login", `{"tenant":"acme","method":"local","user":"ann","password":"`+password+`"}`)
	w.must(401, "", "POST", "/v1/login/begin", `{"tenant":"acme","method":"sso"}`)
	w.must(401, "", "POST", "/v1/login/begin", `{"tenant":"acme","method":"sso","redirect":"http://127.0.0.1:1234/callback"}`)
	w.must(401, "", "POST", "/v1/login/begin", `{"tenant":"acme","method":"sso","redirect":"https://example.com/console/callback"}`)
	w.must(422, "", "POST", "/v1/login/begin", `{"tenant":"acme"}`)
	for _, redirect := range []string{"https://example.com/", "https://a@example.com/console/callback", "https://example.com/console/callback?a=b", "https:///console/callback",
		"http://example.com:80/", "http://127.0.0.1/", "http://127.0.0.1:1/?a=b", "/", "http://a@[::1]:1/",
		"http://localhost:1/", "http://127.0.0.1.example.com:1/", "javascript:alert(1)"} {
		w.must(422, "", "POST", "/v1/login/begin", `{"tenant":"acme","method":"sso","redirect":"`+redirect+`"}`)
	}
	for _, login := range []string{"", "junk", strings.Repeat("A", 100)} {
		w.must(401, "", "POST", "/v1/login/finish", `{"login":"`+login+`","state":"a","code":"b"}`)
	}
}
