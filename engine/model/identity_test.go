package model_test

import (
	"strings"
	"testing"
	"time"

	"github.com/coopr/coopr/engine/model"
)

// TestIdentity checks what is refused of an identity, and at which path.
func TestIdentity(t *testing.T) {
	for _, c := range []struct {
		identity *model.Identity
		path     string // "": it is good
	}{
		{nil, ""},
		{&model.Identity{Audience: "sts.amazonaws.com"}, ""},
		{&model.Identity{Audience: "//iam.googleapis.com/projects/1/x", TTL: "1m"}, ""},
		{&model.Identity{Audience: "vault", TTL: "1h"}, ""},
		{&model.Identity{TTL: "10m"}, "audience"},
		{&model.Identity{Audience: "a b"}, "audience"},
		{&model.Identity{Audience: "a\n"}, "audience"},
		{&model.Identity{Audience: "${secure(x)}"}, "audience"},
		{&model.Identity{Audience: "%host.self%"}, "audience"},
		{&model.Identity{Audience: strings.Repeat("a", 513)}, "audience"},
		{&model.Identity{Audience: "vault", TTL: "soon"}, "ttl"},
		{&model.Identity{Audience: "vault", TTL: "59s"}, "ttl"},
		{&model.Identity{Audience: "vault", TTL: "61m"}, "ttl"},
		{&model.Identity{Audience: "vault", TTL: "-5m"}, "ttl"},
	} {
		var fs model.Faults
		c.identity.Check(&fs, "identity")
		if (c.path == "") != (len(fs) == 0) || len(fs) > 1 || (len(fs) == 1 && fs[0].Path != "identity."+c.path) {
			t.Errorf("%+v: %v", c.identity, fs)
		}
	}
	for ttl, want := range map[string]time.Duration{"": time.Hour, "10m": 10 * time.Minute, "9h": time.Hour} {
		if got := (&model.Identity{TTL: ttl}).Lifetime(); got != want {
			t.Errorf("%q is valid for %s", ttl, got)
		}
	}
}
