package server_test

import (
	"bytes"
	"encoding/json"
	"fmt"
	"net/http"
	"net/url"
	"strconv"
	"strings"

	"github.com/coopr/coopr/engine/plan/tree"
)

// sdkOrder is a command of the DC/OS SDK's command-line client: the request that it sends, and what it makes of the answer.
type sdkOrder struct {
	kind string // how the client reads the answer; see prints
	// method, path and body are the request. The path is below /service/shop/v1/ if it does not begin with a slash. Words in braces
	// stand for names of the cluster; see names.
	method, path, body string
	status, exit       int
	lines              []string // that the client prints, among others
	then               func(*sdkShop)
}

// sdkCase is a row of the table.
type sdkCase struct {
	id       string
	given    func(*sdkShop)
	follower bool // the client asks an agent that does not lead
	orders   []sdkOrder
}

// order sends the request of one of the client's commands, and checks the answer and what the client makes of it.
func (s *sdkShop) order(o sdkOrder) {
	s.t.Helper()
	path := s.names(o.path, url.QueryEscape)
	if !strings.HasPrefix(path, "/") {
		path = "/service/shop/v1/" + path
	}
	var headers []string
	if service, ok := strings.CutPrefix(path, "/cosmos/service/"); ok {
		kind := "application/vnd.dcos.service." + service
		headers = []string{"Accept: " + kind + "-response+json;charset=utf-8;version=v1",
			"Content-Type: " + kind + "-request+json;charset=utf-8;version=v1"}
	}
	what := o.method + " " + path
	a := s.at.client(o.method, path, s.names(o.body, func(name string) string { return name }), headers...)
	if o.kind == "wrong token" {
		a = s.at.ask("", o.method, path, "", "Authorization: token=nobody's", "Accept-Encoding: gzip")
	}
	if a.status != o.status {
		s.t.Errorf("%s: %d, not %d: %s", what, a.status, o.status, a.body)
	}
	s.headers(what, o, path, a)
	exit, text := s.prints(o, path, a)
	if exit != o.exit {
		s.t.Errorf("%s: the client ends with %d, not %d: %s", what, exit, o.exit, text)
	}
	for _, garbled := range []string{"%!", "MISSING"} {
		if strings.Contains(text, garbled) {
			s.t.Errorf("%s: the client prints a garbled text: %s", what, text)
		}
	}
	s.printed = text
	for _, line := range o.lines {
		if line = s.names(line, func(name string) string { return name }); !strings.Contains(text, line) {
			s.t.Errorf("%s: the client does not print %q: %s", what, line, text)
		}
	}
	if o.then != nil {
		o.then(s)
	}
}

// headers checks the type and the length of an answer.
func (s *sdkShop) headers(what string, o sdkOrder, path string, a answer) {
	s.t.Helper()
	kind, length := a.header.Get("Content-Type"), a.header.Get("Content-Length")
	want := "application/json"
	service, cosmos := strings.CutPrefix(path, "/cosmos/service/")
	switch {
	case cosmos && a.status == 200:
		want = "application/vnd.dcos.service." + service + "-response+json;charset=utf-8;version=v1"
	case cosmos:
		want = "application/vnd.dcos.package.error+json;charset=utf-8;version=v1"
	case a.status == 208 || a.status >= 400 && a.status != 417:
		want = "text/plain"
		if strings.HasSuffix(a.body, "\n") {
			s.t.Errorf("%s: the text ends with a newline", what)
		}
	case o.kind == "text":
		want = "text/plain"
	}
	if !strings.HasPrefix(kind, want) {
		s.t.Errorf("%s: Content-Type %q, not %q", what, kind, want)
	}
	switch a.status {
	case 401, 404, 500, 502:
		if length != strconv.Itoa(len(a.body)) || a.header.Get("Content-Encoding") != "" {
			s.t.Errorf("%s: the client does not show the text: Content-Length %q, Content-Encoding %q", what, length,
				a.header.Get("Content-Encoding"))
		}
	case 400, 403, 409, 503:
		if strings.Contains(path, "%") && length != "" {
			s.t.Errorf("%s: the client shows the text twice", what)
		}
	}
}

// format is fmt.Sprintf without arguments, through which the client passes its texts.
func format(text string) string { return fmt.Sprintf(text, []any{}...) }

// prints returns the exit status of the client and what it prints.
func (s *sdkShop) prints(o sdkOrder, path string, a answer) (exit int, text string) {
	s.t.Helper()
	plan := o.kind == "order" || o.kind == "status"
	body := ""
	if length, err := strconv.Atoi(a.header.Get("Content-Length")); err == nil && length > 0 {
		body = fmt.Sprintf("\nResponse data (%d bytes): %s\nHTTP query failed", length, format(a.body))
	}
	if strings.HasPrefix(path, "/cosmos/") {
		return s.printsCosmos(o, a)
	}
	switch {
	case plan && a.status == 208:
		return 1, "Cannot execute command. Command has already been issued or the plan has completed"
	case o.kind == "order" && a.status == 417:
		return 1, "Plan endpoint returned HTTP Expectation Failed response"
	case plan && a.status == 404 && a.body == "Element not found":
		return 1, "Plan, phase, and/or step does not exist"
	case a.status == 401, a.status == 404:
		return 1, fmt.Sprintf("Got %d %s response from URL: ", a.status, http.StatusText(a.status)) + format(body)
	case a.status == 500, a.status == 502:
		return 1, "Could not reach the service scheduler with name 'shop': " + format(body)
	case a.status/100 != 2 && a.status != 417:
		return 1, format(fmt.Sprintf("HTTP %s Query for URL failed: %d %s\nResponse: %s", o.method, a.status, http.StatusText(a.status), a.body) + body)
	}
	at, err := url.Parse(path)
	if err != nil {
		s.t.Fatal(err)
	}
	part := strings.Split(at.Path, "/") // "", service, NAME, v1, plans, PLAN, COMMAND
	switch o.kind {
	case "order":
		var done struct{ Message string }
		a.into(s.t, &done)
		verb := map[string]string{"interrupt": "paused", "continue": "resumed", "restart": "restarted", "forceComplete": "forced to complete"}
		return 0, tree.Told(verb[part[6]], part[5], at.Query().Get("phase"), at.Query().Get("step"), done.Message != "")
	case "status":
		var info tree.Info
		a.into(s.t, &info)
		return 0, format(info.Text(part[5]))
	case "pod":
		var p tree.Pod
		a.into(s.t, &p)
		return 0, format(p.Text())
	case "text":
		return 0, a.body
	}
	var indented bytes.Buffer
	if err := json.Indent(&indented, []byte(a.body), "", "  "); err != nil {
		return 0, "Failed to prettify JSON response data: " + a.body
	}
	return 0, strings.TrimSpace(indented.String())
}

// printsCosmos is prints for the package service.
func (s *sdkShop) printsCosmos(o sdkOrder, a answer) (exit int, text string) {
	s.t.Helper()
	if a.status/100 != 2 {
		return 1, s.printsFault(a)
	}
	var d struct {
		ResolvedOptions          map[string]any
		Package                  struct{ Version string }
		DowngradesTo, UpgradesTo []string
	}
	a.into(s.t, &d)
	switch o.kind {
	case "describe":
		if len(d.ResolvedOptions) == 0 {
			return 0, "Package configuration is not available for service shop."
		}
		options, err := json.MarshalIndent(d.ResolvedOptions, "", "  ")
		if err != nil {
			s.t.Fatal(err)
		}
		return 0, string(options)
	case "versions":
		out := "Current package version is: " + d.Package.Version
		for _, list := range []struct {
			word     string
			versions []string
		}{{"downgrade", d.DowngradesTo}, {"upgrade", d.UpgradesTo}} {
			if len(list.versions) == 0 {
				out += "\nNo valid package " + list.word + " versions."
				continue
			}
			out += "\nPackage can be " + list.word + "d to:\n- " + strings.Join(list.versions, "\n- ")
		}
		return 0, out
	}
	return 0, "Update started."
}

// printsFault returns what the client prints of a refusal of the package service.
func (s *sdkShop) printsFault(a answer) string {
	s.t.Helper()
	var f struct {
		Type, Message string
		Data          struct {
			UpdateVersion      string
			ValidVersions      []string
			OldAppID, NewAppID string
			Errors             []struct {
				Instance struct{ Pointer string }
				Message  string
			}
		}
	}
	if a.status == 404 {
		return "This command requires Enterprise DC/OS 1.10 or newer."
	}
	a.into(s.t, &f)
	switch f.Type {
	case "MarathonAppNotFound":
		return "Unable to find the service named 'shop'."
	case "BadVersionUpdate":
		return "Unable to update shop to requested version: " + f.Data.UpdateVersion + "\nValid package versions are:\n- " +
			strings.Join(f.Data.ValidVersions, "\n- ")
	case "JsonSchemaMismatch":
		out := "Unable to update shop to requested configuration: options JSON failed validation."
		for _, e := range f.Data.Errors {
			out += "\n" + e.Instance.Pointer + " | " + format(e.Message)
		}
		return out
	case "AppIdChanged":
		return fmt.Sprintf("Could not update service name from %q to %q.", f.Data.OldAppID, f.Data.NewAppID)
	}
	return format(fmt.Sprintf("Could not execute command: %s (%s)", f.Message, f.Type))
}
