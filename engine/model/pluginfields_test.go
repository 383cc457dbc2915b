package model_test

import (
	"bytes"
	"encoding/json"
	"fmt"
	"log/slog"
	"reflect"
	"strings"
	"testing"

	"github.com/coopr/coopr/engine/model"
	"github.com/coopr/coopr/engine/model/decode"
)

func cloud(t *testing.T) model.PluginType {
	t.Helper()
	d, err := decode.Definition(model.KindProviderType, []byte(`
name: cloud
parameters:
  admin:
    fields:
      api_user: {label: User, type: text}
      api_password: {label: Password, type: password}
      keypair: {label: Key pair, type: text, override: true}
      region: {label: Region, type: select, options: [dfw, ord], default: dfw, override: true}
      public: {label: Public address, type: checkbox, override: true}
    required: [[api_user, api_password, region], [api_user, keypair]]
  user:
    fields:
      username: {label: Your name, type: text}
      pin: {label: Your PIN, type: text, sensitive: true}
    required: [[username, pin]]
`))
	if err != nil {
		t.Fatal(err)
	}
	return *d.Value.(*model.PluginType)
}

func TestMissingFields(t *testing.T) {
	c := cloud(t)
	admin := c.Parameters.Admin.Fields
	for _, x := range []struct {
		scope model.Scope
		given map[string]any
		want  []map[string]model.FieldSchema
	}{
		{model.ScopeAdmin, map[string]any{"api_user": "u", "api_password": "p"}, nil}, // region has a default
		{model.ScopeAdmin, map[string]any{"api_user": "u", "keypair": "k"}, nil},
		{model.ScopeAdmin, map[string]any{"api_user": "u", "api_password": ""},
			[]map[string]model.FieldSchema{{"api_password": admin["api_password"]}, {"keypair": admin["keypair"]}}},
		{model.ScopeUser, nil, []map[string]model.FieldSchema{{"username": c.Parameters.User.Fields["username"],
			"pin": c.Parameters.User.Fields["pin"]}}},
	} {
		if got := model.MissingFields(c, x.scope, x.given); !reflect.DeepEqual(got, x.want) {
			t.Errorf("%v: got %v", x.given, got)
		}
	}
	if got := model.MissingFields(model.PluginType{}, model.ScopeUser, nil); got != nil {
		t.Errorf("nothing required: %v", got)
	}
	empty := model.PluginType{Parameters: model.PluginParameters{User: model.PluginFields{Required: [][]string{{}}}}}
	if got := model.MissingFields(empty, model.ScopeUser, nil); got != nil {
		t.Errorf("an empty set is always complete: %v", got)
	}
	data, err := json.Marshal(model.MissingFields(c, model.ScopeUser, map[string]any{"username": "u"}))
	if want := `[{"pin":{"label":"Your PIN","type":"text","sensitive":true}}]`; err != nil || string(data) != want {
		t.Errorf("on the wire: %s", data)
	}
}

func TestRedaction(t *testing.T) {
	values := map[string]any{"api_user": "u", "api_password": "hush", "pin": "hush", "google_private_key": "hush",
		"ssh_key_resource": "my-key",
		"auth":             map[string]any{"rackspace_api_key": "hush", "list": []any{map[string]any{"token": "hush"}}},
		"wrapped":          model.NewSecret("hush")}
	if got, want := model.Sensitive(cloud(t), values),
		[]string{"api_password", "google_private_key", "pin", "wrapped"}; !reflect.DeepEqual(got, want) {
		t.Errorf("sensitive: %v", got)
	}
	out, err := json.Marshal(model.RedactFields(cloud(t), values))
	if err != nil || strings.Contains(string(out), "hush") || !strings.Contains(string(out), `"ssh_key_resource":"my-key"`) ||
		!strings.Contains(string(out), `"api_user":"u"`) {
		t.Errorf("%s, %v", out, err)
	}
	if values["api_password"] != "hush" {
		t.Error("the values themselves changed")
	}
}

func TestSecretNeverPrints(t *testing.T) {
	s := model.NewSecret("hush")
	var prints []string
	for _, verb := range []string{"%v", "%+v", "%#v", "%s", "%q", "%x", "%X", "%d", "%10s", "%T"} {
		prints = append(prints, fmt.Sprintf(verb, s), fmt.Sprintf(verb, &s), fmt.Sprintf(verb, struct{ S model.Secret }{s}),
			fmt.Sprintf(verb, map[string]model.Secret{"k": s}))
	}
	prints = append(prints, fmt.Sprint(s), s.String(), fmt.Errorf("with %v", s).Error())
	for _, v := range []any{s, &s, struct{ S model.Secret }{s}, []model.Secret{s}, map[string]any{"k": s}} {
		b, err := json.Marshal(v)
		if err != nil {
			t.Fatal(err)
		}
		prints = append(prints, string(b))
	}
	var log bytes.Buffer
	slog.New(slog.NewJSONHandler(&log, nil)).Info("m", "secret", s, "in", struct{ S model.Secret }{s})
	slog.New(slog.NewTextHandler(&log, nil)).Info("m", "secret", s, "in", struct{ S model.Secret }{s})
	for _, p := range append(prints, log.String()) {
		if strings.Contains(p, "hush") || strings.Contains(p, "68757368") {
			t.Errorf("shows the secret: %s", p)
		}
	}
	var back struct{ S model.Secret }
	if err := json.Unmarshal([]byte(`{"S":"hush"}`), &back); err != nil || back.S.Reveal() != "hush" || back.S.IsZero() {
		t.Errorf("%v", err)
	}
}
