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
	for _, task := range w.Tasks(op)[:3] {
		w.Report(task.ID, model.TaskLeased, "")
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
	if len(all) != 10 || all[0].Type != "operation.changed" || all[0].Actor != "alice" || all[0].Request != "r7" ||
		all[9].Subject != "clustertemplates/shop" {
		t.Fatalf("%d: %+v", len(all), all)
	}
	if got := get(apitest.Admin, "?order=oldest"); len(got) != 10 || got[0].Seq != all[9].Seq || got[9].Seq != all[0].Seq {
		t.Errorf("%+v", got)
	}
	node := w.Tasks(op)[0].Node
	for query, want := range map[string]int{
		"?cluster=shop1": 9, "?cluster=" + id: 9, "?cluster=gone": 0, "?operation=" + op: 8, "?actor=bob": 2, "?actor=coopr": 6,
		"?type=task.*":                       6,
		"?type=task.taken,operation.changed": 5, "?node=" + node: 4, "?node=" + node + "&type=task.taken": 2,
		fmt.Sprintf("?since=%d", all[0].Time): 1, fmt.Sprintf("?until=%d", all[9].Time): 1,
	} {
		if got := get(apitest.Admin, query); len(got) != want {
			t.Errorf("%s: %d records, not %d", query, len(got), want)
		}
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
		if seen != 10 {
			t.Errorf("%s: %d records by pages", order, seen)
		}
	}
	// Each tenant has its own records. A superadmin sees those of all tenants with tenant=*.
	if got := get(apitest.Super, ""); len(got) != 1 || got[0].Subject != "services/mine" {
		t.Errorf("%+v", got)
	}
	if got := get(apitest.Super, "?tenant=*"); len(got) != 11 {
		t.Errorf("%d records of all tenants", len(got))
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
	if !rep.OK || rep.Records != 11 || rep.Head.Seq != 11 {
		t.Errorf("%+v", rep)
	}

	// An export can be verified by itself, as can parts of it.
	file := w.must(200, apitest.Admin, "GET", "/v1/audit/export", "")
	if ct := file.header.Get("Content-Type"); ct != "application/x-ndjson" || strings.Contains(file.body, "services/mine") {
		t.Errorf("%s\n%s", ct, file.body)
	}
	check := func(body string, records, hidden uint64) audit.Verification {
		t.Helper()
		got, err := audit.VerifyLines(strings.NewReader(body), rep.Head)
		if err != nil || !got.OK || got.Records != records || got.Hidden != hidden {
			t.Errorf("%v %+v %+v", err, got, got.Bad)
		}
		return got
	}
	check(file.body, 10, 1)
	check(w.must(200, apitest.Super, "GET", "/v1/audit/export?tenant=*", "").body, 11, 0)
	check(w.must(200, apitest.Admin, "GET", "/v1/audit/export?after=5", "").body, 6, 0)
	part := w.must(200, apitest.Admin, "GET", "/v1/audit/export?type=task.*", "").body
	if n := strings.Count(part, "\n"); n != 7 {
		t.Errorf("%d lines", n)
	}
	var lead audit.Lead
	if err := json.NewDecoder(strings.NewReader(part)).Decode(&lead); err != nil || !lead.Part {
		t.Errorf("%v %+v", err, lead)
	}
	lines := strings.SplitAfter(file.body, "\n")
	if got, err := audit.VerifyLines(bytes.NewReader([]byte(strings.Join(append(lines[:4:4], lines[5:]...), "")))); err != nil || got.OK ||
		got.Bad.Seq != 4 {
		t.Errorf("a line is missing: %v %+v", err, got.Bad)
	}

	// A request for records that retention has dropped fails.
	w.Prune(4)
	w.must(409, apitest.Admin, "GET", "/v1/audit?order=oldest&from=3", "")
	w.must(409, apitest.Admin, "GET", "/v1/audit/export?after=3", "")
	check(w.must(200, apitest.Admin, "GET", "/v1/audit/export", "").body, 4, 0)
}
