package server_test

import (
	"bytes"
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	"github.com/coopr/coopr/engine/audit"
	"github.com/coopr/coopr/engine/model"
	"github.com/coopr/coopr/rpc/api"
	"github.com/coopr/coopr/rpc/server/apitest"
)

func TestAudit(t *testing.T) {
	w := newWorld(t)
	w.template()
	w.must(200, apitest.Super, "PUT", "/v1/services/mine", `{"name":"mine"}`)
	id, op := w.cluster("shop1", "2")
	for _, task := range w.Tasks(op)[:2] { // the machines
		w.Report(task.ID, model.TaskSucceeded, "")
	}
	w.must(200, apitest.Admin, "POST", "/v1/operations/"+op+"/pause", `{"reason":"lunch"}`, "Coopr-Request-Id: r7")
	get := func(token, query string) []audit.Record {
		t.Helper()
		var page api.AuditPage
		w.must(200, token, "GET", "/v1/audit"+query, "").into(t, &page)
		return page.Records
	}
	all := get(apitest.Admin, "")
	total := len(all)
	last := all[total-1]
	if all[0].Type != "operation.changed" || all[0].Actor != "alice" || all[0].Request != "r7" || last.Subject != "acme" {
		t.Fatalf("%d: %+v\n%+v", total, all[0], last)
	}
	if got := get(apitest.Admin, "?order=oldest"); len(got) != total || got[0].Seq != last.Seq || got[total-1].Seq != all[0].Seq {
		t.Errorf("%+v", got)
	}
	// count returns how many records have what a query asks for.
	count := func(has func(r audit.Record) bool) (n int) {
		for _, r := range all {
			if has(r) {
				n++
			}
		}
		return n
	}
	node := w.Tasks(op)[0].Node
	queries := map[string]func(r audit.Record) bool{
		"?cluster=shop1":   func(r audit.Record) bool { return r.Cluster == id },
		"?cluster=" + id:   func(r audit.Record) bool { return r.Cluster == id },
		"?operation=" + op: func(r audit.Record) bool { return r.Operation == op },
		"?actor=bob":       func(r audit.Record) bool { return r.Actor == "bob" },
		"?actor=coopr":     func(r audit.Record) bool { return r.Actor == "coopr" },
		"?type=task.*":     func(r audit.Record) bool { return strings.HasPrefix(r.Type, "task.") },
		"?type=task.taken,operation.changed": func(r audit.Record) bool {
			return r.Type == "task.taken" || r.Type == "operation.changed"
		},
		"?node=" + node:                       func(r audit.Record) bool { return r.Node == node },
		"?node=" + node + "&type=task.taken":  func(r audit.Record) bool { return r.Node == node && r.Type == "task.taken" },
		fmt.Sprintf("?since=%d", all[0].Time): func(r audit.Record) bool { return r.Time >= all[0].Time },
		fmt.Sprintf("?until=%d", last.Time):   func(r audit.Record) bool { return r.Time <= last.Time },
	}
	for query, has := range queries {
		if got, want := len(get(apitest.Admin, query)), count(has); got != want || want == 0 || want == total {
			t.Errorf("%s: %d records, not %d of %d", query, got, want, total)
		}
	}
	if got := get(apitest.Admin, "?cluster=gone"); len(got) != 0 {
		t.Errorf("%+v", got)
	}
	// Pages in both orders have all records.
	for _, order := range []string{"newest", "oldest"} {
		seen, from := 0, ""
		for {
			var page api.AuditPage
			w.must(200, apitest.Admin, "GET", "/v1/audit?limit=3&order="+order+"&from="+from, "").into(t, &page)
			seen += len(page.Records)
			if from = page.Next; from == "" {
				break
			}
		}
		if seen != total {
			t.Errorf("%s: %d records by pages", order, seen)
		}
	}
	// Each tenant has its own records. A superadmin sees those of all tenants with tenant=*.
	mine := get(apitest.Super, "")
	if mine[0].Subject != "services/mine" {
		t.Errorf("%+v", mine)
	}
	every := uint64(len(get(apitest.Super, "?tenant=*")))
	if every < uint64(total+len(mine)) {
		t.Errorf("%d records of all tenants", every)
	}
	for _, path := range []string{"", "/verify", "/export"} {
		w.must(403, apitest.User, "GET", "/v1/audit"+path, "")
		w.must(403, apitest.Admin, "GET", "/v1/audit"+path+"?tenant=*", "")
	}
	for _, bad := range []string{"?from=x", "?from=1.x", "?limit=0", "?limit=10001", "?order=best", "?since=-1"} {
		w.must(422, apitest.Admin, "GET", "/v1/audit"+bad, "")
	}
	var rep audit.Verification
	w.must(200, apitest.Admin, "GET", "/v1/audit/verify", "").into(t, &rep)
	if !rep.OK || rep.Records != every || rep.Head.Seq < all[0].Seq {
		t.Errorf("%+v", rep)
	}

	// An export can be verified by itself, as can parts of it.
	file := w.must(200, apitest.Admin, "GET", "/v1/audit/export", "")
	if ct := file.header.Get("Content-Type"); ct != "application/x-ndjson" || strings.Contains(file.body, "services/mine") {
		t.Errorf("%s\n%s", ct, file.body)
	}
	check := func(body string, records, hidden uint64) audit.Verification {
		t.Helper()
		got, err := audit.VerifyLines(strings.NewReader(body), nil, rep.Head)
		if err != nil || !got.OK || got.Records != records || got.Hidden != hidden {
			t.Errorf("%v %+v %+v", err, got, got.Bad)
		}
		return got
	}
	own := uint64(total)
	check(file.body, own, every-own)
	check(w.must(200, apitest.Super, "GET", "/v1/audit/export?tenant=*", "").body, every, 0)
	after := all[0].Seq - 3
	check(w.must(200, apitest.Admin, "GET", fmt.Sprintf("/v1/audit/export?after=%d", after), "").body,
		uint64(count(func(r audit.Record) bool { return r.Seq > after })), 0)
	part := w.must(200, apitest.Admin, "GET", "/v1/audit/export?type=task.*", "").body
	if n := strings.Count(part, "\n"); n != count(queries["?type=task.*"])+1 {
		t.Errorf("%d lines", n)
	}
	var lead audit.Lead
	if err := json.NewDecoder(strings.NewReader(part)).Decode(&lead); err != nil || !lead.Part {
		t.Errorf("%v %+v", err, lead)
	}
	lines := strings.SplitAfter(file.body, "\n")
	if got, err := audit.VerifyLines(bytes.NewReader([]byte(strings.Join(append(lines[:4:4], lines[5:]...), ""))), nil); err != nil || got.OK {
		t.Errorf("a line is missing: %v %+v", err, got.Bad)
	}

	// A request for records that retention has dropped fails.
	w.Prune(4)
	w.must(409, apitest.Admin, "GET", "/v1/audit?order=oldest&from=3", "")
	w.must(409, apitest.Admin, "GET", "/v1/audit/export?after=3", "")
	check(w.must(200, apitest.Admin, "GET", "/v1/audit/export", "").body, 4, 1) // that of the retention itself is hidden
}
