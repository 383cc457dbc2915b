package model

import (
	"errors"
	"testing"

	"pgregory.net/rapid"
)

// TestResourceLife checks that after any orders at most one version is in force and at most one
// is staged, only inactive versions are deleted, and no number is used again.
func TestResourceLife(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		r := &PluginResource{ResourceKey: ResourceKey{KindAutomatorType, "shell", "scripts", "x"}}
		last := 0
		for range rapid.IntRange(1, 40).Draw(t, "steps") {
			switch what := rapid.SampledFrom([]string{"add", "sync", StageResource, RecallResource, ActivateResource, DeleteResource}).Draw(t,
				"what"); what {
			case "add":
				if n := r.Add(ResourceVersion{}); n != last+1 {
					t.Fatalf("version %d after %d", n, last)
				}
				last++
			case "sync":
				r.Sync()
				for _, v := range r.Versions {
					if v.Status == ResourceStaged || v.Status == ResourceRecalled {
						t.Fatalf("%s is %s after a sync", v, v.Status)
					}
				}
			default:
				n := rapid.IntRange(1, 5).Draw(t, "version")
				before := r.Clone()
				err := r.Order(what, n)
				was := before.Find(n)
				switch {
				case was == nil:
					if !errors.Is(err, ErrNoResourceVersion) {
						t.Fatalf("%s of a version that is not there: %v", what, err)
					}
				case what == DeleteResource && was.Status != ResourceInactive:
					if err == nil || r.Find(n) == nil {
						t.Fatalf("%s was deleted: it was %s", was, was.Status)
					}
				case err != nil:
					t.Fatal(err)
				case what == StageResource || what == ActivateResource:
					if now := r.Find(n).Status; now != ResourceActive && now != ResourceStaged {
						t.Fatalf("%s is %s after %s", was, now, what)
					}
				}
				if live := before.Live(); live != nil && (what == StageResource || what == RecallResource) &&
					(r.Live() == nil || r.Live().Version != live.Version) {
					t.Fatalf("%s changed what is in force before a sync", what)
				}
			}
			live, staged := 0, 0
			for _, v := range r.Versions {
				if v.Status.Live() {
					live++
				}
				if v.Status == ResourceStaged {
					staged++
				}
			}
			if live > 1 || staged > 1 {
				t.Fatalf("%d in force, %d staged: %+v", live, staged, r.Versions)
			}
		}
	})
}

// TestSecretTypes checks that a type is secret by its own field, or by the permissions of its files.
func TestSecretTypes(t *testing.T) {
	for _, c := range []struct {
		t    ResourceType
		want bool
	}{
		{ResourceType{Format: "file", Permissions: "0400"}, true},
		{ResourceType{Format: "file", Permissions: "0600"}, true},
		{ResourceType{Format: "file", Permissions: "0640"}, false},
		{ResourceType{Format: "file"}, false},
		{ResourceType{Format: "archive", Secret: true}, true},
		{ResourceType{Format: "file", Permissions: "0755"}, false},
	} {
		if got := c.t.IsSecret(); got != c.want {
			t.Errorf("%+v: %v", c.t, got)
		}
	}
}

func TestResourceNames(t *testing.T) {
	for _, good := range []string{"a", "coopr_base", "deploy.sh", "Web-2.1", "_x"} {
		if why := CheckResourceName(good); why != "" {
			t.Error(why)
		}
	}
	for _, bad := range []string{"", ".", "..", "a/b", "-x", ".x", "a b", "ä", string(make([]byte, 200))} {
		if CheckResourceName(bad) == "" {
			t.Errorf("%q was taken", bad)
		}
	}
}
