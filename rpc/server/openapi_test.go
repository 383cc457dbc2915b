package server_test

import (
	"bytes"
	"encoding/json"
	"fmt"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"

	"go.yaml.in/yaml/v3"

	"github.com/coopr/coopr/rpc/server"
)

func TestDocumentIsCurrent(t *testing.T) {
	want, err := server.Document()
	if err != nil {
		t.Fatal(err)
	}
	got, err := os.ReadFile("../../docs/openapi.json")
	if err != nil {
		t.Fatal(err)
	}
	if !bytes.Equal(got, want) {
		t.Error("docs/openapi.json is not what the handlers say: run make generate")
	}
	again, err := server.Document()
	if err != nil || !bytes.Equal(again, want) {
		t.Error("the document is not the same each time")
	}
}

func TestDocumentIsServed(t *testing.T) {
	w := newWorld(t)
	a := w.must(200, "", "GET", "/v1/openapi.json", "")
	var j, y any
	a.into(t, &j)
	a = w.must(200, "", "GET", "/v1/openapi.yaml", "")
	if err := yaml.Unmarshal([]byte(a.body), &y); err != nil {
		t.Fatal(err)
	}
	jb, _ := json.Marshal(j)
	yb, err := json.Marshal(y)
	if err != nil || !bytes.Equal(jb, yb) {
		t.Errorf("JSON and YAML differ: %v", err)
	}
}

// TestDocumentIsValid checks the rules of OpenAPI 3.1 on which programs that read the
// document rely.
func TestDocumentIsValid(t *testing.T) {
	raw, err := server.Document()
	if err != nil {
		t.Fatal(err)
	}
	var doc map[string]any
	if err := json.Unmarshal(raw, &doc); err != nil {
		t.Fatal(err)
	}
	if !strings.HasPrefix(doc["openapi"].(string), "3.1.") || doc["info"].(map[string]any)["title"] == "" ||
		doc["info"].(map[string]any)["version"] == "" {
		t.Errorf("head: %v %v", doc["openapi"], doc["info"])
	}
	schemas := doc["components"].(map[string]any)["schemas"].(map[string]any)
	used := map[string]bool{}
	types := map[string]bool{"string": true, "integer": true, "number": true, "boolean": true, "array": true, "object": true, "null": true}
	var walk func(path string, v any)
	walk = func(path string, v any) {
		switch v := v.(type) {
		case map[string]any:
			if ref, ok := v["$ref"].(string); ok {
				name, ok := strings.CutPrefix(ref, "#/components/schemas/")
				if _, found := schemas[name]; !ok || !found {
					t.Errorf("%s: nothing at %s", path, ref)
				}
				used[name] = true
			}
			if strings.Contains(path, "chema") && !strings.HasSuffix(path, "/properties") {
				switch typ := v["type"].(type) {
				case string:
					if !types[typ] {
						t.Errorf("%s: type %q", path, typ)
					}
				case []any:
					for _, one := range typ {
						if !types[fmt.Sprint(one)] {
							t.Errorf("%s: type %q", path, one)
						}
					}
				}
				if v["type"] == "array" && v["items"] == nil {
					t.Errorf("%s: an array of nothing", path)
				}
				props, _ := v["properties"].(map[string]any)
				required, _ := v["required"].([]any)
				for _, name := range required {
					if props[name.(string)] == nil && v["type"] == "object" {
						t.Errorf("%s: requires %s, which is not a property", path, name)
					}
				}
			}
			for k, item := range v {
				walk(path+"/"+k, item)
			}
		case []any:
			for i, item := range v {
				walk(fmt.Sprintf("%s/%d", path, i), item)
			}
		}
	}
	walk("", doc)
	for name := range schemas {
		if !used[name] {
			t.Errorf("schema %s is used by nothing", name)
		}
	}
	ids := map[string]string{}
	param := regexp.MustCompile(`\{([^}]+)\}`)
	for path, item := range doc["paths"].(map[string]any) {
		// The others are where clients of DC/OS and of OpenID Connect expect them.
		if !strings.HasPrefix(path, "/v1/") && !strings.HasPrefix(path, "/cosmos/service/") && !strings.HasPrefix(path, "/.well-known/") {
			t.Errorf("path %s", path)
		}
		for method, o := range item.(map[string]any) {
			op := o.(map[string]any)
			at := method + " " + path
			id, _ := op["operationId"].(string)
			if id == "" || ids[id] != "" {
				t.Errorf("%s: operationId %q is missing or that of %s", at, id, ids[id])
			}
			ids[id] = at
			if op["summary"] == nil || op["tags"] == nil {
				t.Errorf("%s: no summary or tag", at)
			}
			responses := op["responses"].(map[string]any)
			if responses["default"] == nil || len(responses) < 2 {
				t.Errorf("%s: responses %v", at, responses)
			}
			for status, r := range responses {
				if r.(map[string]any)["description"] == "" {
					t.Errorf("%s: response %s is not described", at, status)
				}
			}
			want := map[string]bool{}
			for _, m := range param.FindAllStringSubmatch(path, -1) {
				want[m[1]] = true
			}
			seen := map[string]bool{}
			params, _ := op["parameters"].([]any)
			for _, p := range params {
				p := p.(map[string]any)
				key := p["in"].(string) + " " + p["name"].(string)
				if seen[key] {
					t.Errorf("%s: %s twice", at, key)
				}
				seen[key] = true
				if p["in"] == "path" {
					if !want[p["name"].(string)] || p["required"] != true {
						t.Errorf("%s: path parameter %v", at, p)
					}
					delete(want, p["name"].(string))
				}
			}
			if len(want) > 0 {
				t.Errorf("%s: parameters %v are not described", at, want)
			}
			if op["requestBody"] != nil && method == "get" {
				t.Errorf("%s: a body", at)
			}
			public := fmt.Sprint(op["security"]) == "[map[]]"
			if public != slices.Contains(open, path) {
				t.Errorf("%s: security %v", at, op["security"])
			}
		}
	}
	if len(ids) < 100 {
		t.Errorf("only %d operations", len(ids))
	}
}

// open are the routes that need no token.
var open = []string{"/v1/healthz", "/v1/readyz", "/v1/login", "/v1/login/begin", "/v1/login/finish", "/v1/jwks",
	"/.well-known/openid-configuration"}

// TestEveryRouteWantsAToken calls each route of the document without a token.
func TestEveryRouteWantsAToken(t *testing.T) {
	w := newWorld(t)
	raw, err := server.Document()
	if err != nil {
		t.Fatal(err)
	}
	var doc struct {
		Paths map[string]map[string]any
	}
	if err := json.Unmarshal(raw, &doc); err != nil {
		t.Fatal(err)
	}
	for path, methods := range doc.Paths {
		for method := range methods {
			if slices.Contains(open, path) {
				continue
			}
			target := regexp.MustCompile(`\{[^}]+\}`).ReplaceAllString(path, "1")
			if a := w.ask("", strings.ToUpper(method), target, ""); a.status != 401 {
				t.Errorf("%s %s: status %d", method, path, a.status)
			}
		}
	}
}
