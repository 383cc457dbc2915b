package main

import (
	"encoding/json"
	"fmt"
	"os"
	"slices"
	"strings"

	"github.com/coopr/coopr/engine/macro"
)

// macroFile is a file of macro cases with the results of the original's parser and expander.
type macroFile struct {
	Cluster struct {
		Account struct {
			UserID string `json:"userId"`
		} `json:"account"`
	} `json:"cluster"`
	Nodes []struct {
		ID          string            `json:"id"`
		Hostname    string            `json:"hostname"`
		IPAddresses map[string]string `json:"ipaddresses"`
		Number      int               `json:"nodenum"`
		Services    []string          `json:"services"`
	} `json:"nodes"`
	ParseOK   []macroParse `json:"parseOK"`
	ParseFail []string     `json:"parseFail"`
	Evaluate  []struct {
		Macro  string  `json:"macro"`
		Node   string  `json:"node"`
		Result *string `json:"result"`
		Error  string  `json:"error"`
	} `json:"evaluate"`
	Format struct {
		Value string      `json:"value"`
		Cases [][2]string `json:"cases"`
	} `json:"format"`
}

// macroParse is ["expression", {meaning}].
type macroParse struct {
	Expr string
	Want struct {
		Eval    string  `json:"eval"`
		Type    string  `json:"type"`
		Service string  `json:"service"`
		Index   *int    `json:"index"`
		Format  *string `json:"format"`
		Sep     *string `json:"sep"`
	}
}

// UnmarshalJSON reads the pair.
func (p *macroParse) UnmarshalJSON(b []byte) error {
	return json.Unmarshal(b, &[]any{&p.Expr, &p.Want})
}

// macroDecisions are the cases in which this project differs from the original on purpose. Lists
// are in the order of node ids there, and in the order of node numbers here, like indexes and
// instance numbers in both (docs/spec/planner.md, "What a task carries").
var macroDecisions = map[string]string{
	"%ip.access_v4.service.svc1%":                              "9.7.8.4,9.6.8.1,9.1.3.4",
	"%join(host.service.svc1,'-')%":                            "oof-rab-eno",
	"service one: %join(map(host.service.svc1,'$:2181'),',')%": "service one: oof:2181,rab:2181,eno:2181",
	"this %% is not a macro, but this is: %host.service.svc1%": "this % is not a macro, but this is: oof,rab,eno",
}

var macroKinds = map[string]macro.Kind{
	"host": macro.Host, "ip": macro.IP, "host.self": macro.HostSelf, "ip.self": macro.IPSelf,
	"instance": macro.Instance, "num": macro.Num, "owner": macro.Owner,
}

// runMacros runs macro cases and prints those that fail.
func runMacros(files []string) (passed, failed int) {
	for _, name := range files {
		report := func(what string, err error) {
			if err == nil {
				passed++
				return
			}
			failed++
			fmt.Printf("FAIL %s: %s: %v\n", name, what, err)
		}
		data, err := os.ReadFile(name)
		var file macroFile
		if err == nil {
			err = json.Unmarshal(data, &file)
		}
		if err != nil {
			report("file", err)
			continue
		}
		file.run(report)
	}
	return passed, failed
}

func (f *macroFile) run(report func(string, error)) {
	for _, c := range f.ParseOK {
		report("parse "+c.Expr, c.check())
	}
	for _, s := range f.ParseFail {
		_, err := macro.Parse(s)
		if err == nil {
			err = fmt.Errorf("accepted")
		} else {
			err = nil
		}
		report(fmt.Sprintf("refuse %q", s), err)
	}
	var nodes []macro.Node
	numbers := map[string]int{}
	for _, n := range f.Nodes {
		numbers[n.ID] = n.Number
		nodes = append(nodes, macro.Node{Number: n.Number, Hostname: n.Hostname, IPAddresses: n.IPAddresses, Services: n.Services})
	}
	slices.Reverse(nodes) // the order in which nodes are given must not matter
	cluster := macro.NewCluster(f.Cluster.Account.UserID, nodes)
	for _, c := range f.Evaluate {
		got, err := macro.Expand(c.Macro, macro.Context{Cluster: cluster, Self: numbers[c.Node]})
		want := c.Macro // not on the cluster: left as it is
		if c.Result != nil {
			want = *c.Result
		}
		if ours, ok := macroDecisions[c.Macro]; ok {
			want = ours
		}
		switch {
		case c.Error != "" && err != nil:
			err = nil
		case c.Error != "":
			err = fmt.Errorf("gives %q, not an error (%s)", got, c.Error)
		case err == nil && got != want:
			err = fmt.Errorf("gives %q, not %q", got, want)
		}
		report("expand "+c.Macro+" on "+c.Node, err)
	}
	for _, c := range f.Format.Cases {
		one := macro.NewCluster("", []macro.Node{{Hostname: f.Format.Value, Services: []string{"s"}}})
		got, err := macro.Expand("%map(host.service.s,'"+c[0]+"')%", macro.Context{Cluster: one, Self: macro.NoNode})
		if err == nil && got != c[1] {
			err = fmt.Errorf("gives %q, not %q", got, c[1])
		}
		report(fmt.Sprintf("format %q", c[0]), err)
	}
}

// check compares the parsed expression with the case.
func (p *macroParse) check() error {
	e, err := macro.Parse(p.Expr)
	if err != nil {
		return err
	}
	var wrong []string
	differ := func(name string, got, want any) {
		if got != want {
			wrong = append(wrong, fmt.Sprintf("%s is %v, not %v", name, got, want))
		}
	}
	if p.Want.Eval != "" {
		differ("kind", e.Kind, macroKinds[p.Want.Eval])
	}
	if p.Want.Service != "" {
		differ("service", e.Service, p.Want.Service)
	}
	if p.Want.Type != "" {
		differ("type", e.IPType, p.Want.Type)
	}
	index := -1
	if p.Want.Index != nil {
		index = *p.Want.Index
	}
	differ("index", e.Index, index)
	differ("mapped", e.Mapped, p.Want.Format != nil)
	if p.Want.Format != nil {
		differ("format", e.Format, *p.Want.Format)
	}
	differ("joined", e.Joined, p.Want.Sep != nil)
	if p.Want.Sep != nil {
		differ("separator", e.Separator, *p.Want.Sep)
	}
	if len(wrong) > 0 {
		return fmt.Errorf("%s", strings.Join(wrong, "; "))
	}
	return nil
}
