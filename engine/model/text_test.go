package model_test

import (
	"strings"
	"testing"

	"github.com/coopr/coopr/engine/model"
	"github.com/coopr/coopr/engine/model/decode"
)

// world reads a YAML text of several documents, each with its kind.
func world(t *testing.T, text string) []model.Definition {
	t.Helper()
	defs, err := decode.Classify("world.yaml", []byte(text))
	if err != nil {
		t.Fatal(err)
	}
	return defs
}

func encoded(t *testing.T, d model.Definition) string {
	t.Helper()
	b, err := model.Encode(d)
	if err != nil {
		t.Fatal(err)
	}
	return string(b)
}

// wantLines compares an error with the lines that a user shall read.
func wantLines(t *testing.T, err error, want ...string) {
	t.Helper()
	got := ""
	if err != nil {
		got = err.Error()
	}
	if w := strings.Join(want, "\n"); got != w {
		t.Errorf("got\n%s\nwant\n%s", got, w)
	}
}
