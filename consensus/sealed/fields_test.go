package sealed_test

import (
	"bytes"
	"encoding/json"
	"errors"
	"reflect"
	"testing"

	"github.com/coopr/coopr/consensus/keyring"
	"github.com/coopr/coopr/consensus/sealed"
	"github.com/coopr/coopr/engine/hostexec"
	"github.com/coopr/coopr/engine/model"
	pb "github.com/coopr/coopr/rpc/proto"
)

// openVoter returns a voter with keys. Its tenant "t" has a definition of the provider type docker that marks all fields as sensitive.
func openVoter(t testing.TB) *voter {
	v := newVoter(t)
	if err := errors.Join(v.ring.Put(keyring.Set{Active: 1, Keys: []keyring.Key{keyring.NewKey(1)}}), v.box.MakeMeshKey(t.Context())); err != nil {
		t.Fatal(err)
	}
	v.do(t, &pb.Command{Tenant: "t", Change: &pb.Command_PutDefinitions{PutDefinitions: &pb.PutDefinitions{Definitions: []*pb.Definition{
		{Kind: "providertypes", Name: "docker", Body: []byte(`{"name": "docker", "parameters": {"admin": {"fields": {
			"engine": {"label": "e", "type": "password"}, "inventory": {"label": "i", "type": "text", "sensitive": true},
			"word": {"label": "w", "type": "password"}, "number": {"label": "n", "type": "text", "sensitive": true},
			"credentials": {"label": "c", "type": "text"}}}}}`)},
	}}}})
	return v
}

func TestFields(t *testing.T) {
	v := openVoter(t)
	fields := map[string]any{}
	if err := json.Unmarshal([]byte(`{"engine": "unix:///run/docker.sock", "word": "canary-1", "number": 7, "empty": "", "none": null,
		"credentials": {"user": "u", "key": ["canary-2"]}, "region": "r", "deep": [{"x": {"ssh_password": "canary-3"}}],
		"inventory": [{"address": "localhost", "ssh_password": "canary-4"}]}`), &fields); err != nil {
		t.Fatal(err)
	}
	offered, defined := v.View().ProviderTypes("t", "docker")
	if !sealed.Sensitive(offered, defined, fields) {
		t.Error("there is nothing to encrypt")
	}
	out, err := v.box.SealFields(t.Context(), "t", "docker", fields)
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"engine", "region", "empty", "none"} {
		if !reflect.DeepEqual(out[name], fields[name]) {
			t.Errorf("%s is %v", name, out[name])
		}
	}
	for _, name := range []string{"word", "number", "credentials"} {
		if _, ok := model.ParseSealedRef(out[name]); !ok {
			t.Errorf("%s is %v", name, out[name])
		}
	}
	var dump bytes.Buffer
	if err := v.View().Write(&dump); err != nil {
		t.Fatal(err)
	}
	text, err := json.Marshal(out)
	if err != nil {
		t.Fatal(err)
	}
	if bytes.Contains(dump.Bytes(), []byte("canary")) || bytes.Contains(text, []byte("canary")) {
		t.Errorf("a value is in the clear: %s", text)
	}
	// Rules about control hosts see the same as before.
	for _, kind := range []string{"docker", "hosts"} {
		if was, is := hostexec.Provider(kind, fields), hostexec.Provider(kind, out); !reflect.DeepEqual(was, is) || len(is) == 0 {
			t.Errorf("%s uses %v, and before %v", kind, is, was)
		}
	}
	if sealed.Sensitive(offered, defined, out) {
		t.Error("encrypted fields are sensitive")
	}
	again, err := v.box.SealFields(t.Context(), "t", "docker", out)
	if err != nil || !reflect.DeepEqual(again, out) {
		t.Error("encrypted fields were encrypted again", err)
	}
	back, err := v.box.OpenFields(v.View().SealedView, "t", out)
	if err != nil || !reflect.DeepEqual(back, fields) {
		t.Errorf("%v, %v", back, err)
	}
	shown := model.RedactFields(model.PluginType{}, out)
	if model.HasSealedRef(shown) {
		t.Errorf("names of encrypted values are shown: %v", shown)
	}
	if _, err := v.box.OpenFields(v.View().SealedView, "u", out); err == nil {
		t.Error("another tenant opened the fields")
	}
}

// TestFieldsByName has fields whose values come from secrets.
func TestFieldsByName(t *testing.T) {
	v := openVoter(t)
	out, err := v.box.SealFields(t.Context(), "t", "cloud", map[string]any{"note": "canary", "host": "h", "region": "r"}, "note", "host", "none")
	if _, ok := model.ParseSealedRef(out["note"]); !ok || out["host"] != "h" || out["region"] != "r" || len(out) != 3 || err != nil {
		t.Error(out, err)
	}
}

func TestFieldsWithoutSecrets(t *testing.T) {
	v := newVoter(t) // it has no keys, and needs none
	fields := map[string]any{"region": "r"}
	out, err := v.box.SealFields(t.Context(), "t", "cloud", fields)
	if err != nil || !reflect.DeepEqual(out, fields) || v.View().Rows()["sealed"] != 0 {
		t.Error(out, err)
	}
	if out, err := v.box.OpenFields(v.View().SealedView, "t", fields); err != nil || !reflect.DeepEqual(out, fields) {
		t.Error(out, err)
	}
}

// TestHiddenWithinSensitive has the value of a reference within a field that is encrypted as a whole. It was lost: the text that stands for
// hidden values was encrypted in its place.
func TestHiddenWithinSensitive(t *testing.T) {
	v := openVoter(t)
	kept, err := v.box.SealFields(t.Context(), "t", "cloud", map[string]any{"password": "canary-1"})
	if err != nil {
		t.Fatal(err)
	}
	fields := map[string]any{
		"credential": map[string]any{"user": "u", "key": model.Hidden{Value: "canary-2"}},
		"secrets":    []any{kept["password"], "canary-3", map[string]any{"plain": "canary-4"}},
	}
	want := map[string]any{
		"credential": map[string]any{"user": "u", "key": "canary-2"},
		"secrets":    []any{"canary-1", "canary-3", map[string]any{"plain": "canary-4"}},
	}
	out, err := v.box.SealAction(t.Context(), "t", "shell", fields)
	if err != nil {
		t.Fatal(err)
	}
	text, err := json.Marshal(out)
	if err != nil || bytes.Contains(text, []byte("canary")) {
		t.Errorf("a value is in the clear: %s %v", text, err)
	}
	if back, err := v.box.OpenFields(v.View().SealedView, "t", out); err != nil || !reflect.DeepEqual(back, want) {
		t.Errorf("%v, %v", back, err)
	}
}

func TestKeep(t *testing.T) {
	v := openVoter(t)
	hidden := model.Hidden{Value: "canary"}
	stored, err := v.box.SealFields(t.Context(), "t", "cloud", map[string]any{"password": "canary", "token": map[string]any{"n": 7.0},
		"list": []any{"x", map[string]any{"secret": "canary"}}, "region": "r"})
	if err != nil {
		t.Fatal(err)
	}
	item := func(fields map[string]any, i int) any { return fields["list"].([]any)[i].(map[string]any)["secret"] }
	again := func(password, inside any) map[string]any {
		return map[string]any{"password": password, "token": map[string]any{"n": 7.0}, "list": []any{"x", map[string]any{"secret": inside}},
			"region": "r"}
	}
	keep := func(fields map[string]any, literals bool) map[string]any {
		return v.box.Keep(v.View().SealedView, "t", fields, stored, literals)
	}
	if got := keep(again("canary", "canary"), true); !reflect.DeepEqual(got, stored) {
		t.Errorf("literals: %v", got)
	}
	if got := keep(again(hidden, hidden), true); !reflect.DeepEqual(got, stored) {
		t.Errorf("hidden: %v", got)
	}
	if got := keep(again(hidden, "canary"), false); got["password"] != stored["password"] || item(got, 1) != "canary" {
		t.Errorf("hidden only: %v", got)
	}
	other := model.Hidden{Value: "other"}
	if got := keep(again("other", other), true); got["password"] != "other" || item(got, 1) != other || got["token"] != stored["token"] {
		t.Errorf("others: %v", got)
	}
	if got := keep(stored, true); !reflect.DeepEqual(got, stored) {
		t.Errorf("references: %v", got)
	}
	if got := keep(nil, true); got != nil {
		t.Errorf("nothing: %v", got)
	}
	// A reference that nobody can follow must not hinder a new value.
	gone := map[string]any{"password": model.SealedRef{ID: "gone", Version: 1}.String()}
	if got := v.box.Keep(v.View().SealedView, "t", map[string]any{"password": "canary"}, gone, true); got["password"] != "canary" {
		t.Errorf("a value that is gone: %v", got)
	}
	if got := v.box.Keep(v.View().SealedView, "u", again("canary", "canary"), stored, true); got["password"] != "canary" {
		t.Errorf("another tenant: %v", got)
	}
}
