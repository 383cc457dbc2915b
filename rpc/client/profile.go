package client

import (
	"context"
	"net/http"
	"strconv"

	"github.com/coopr/coopr/engine/profile"
	"github.com/coopr/coopr/rpc/api"
)

// Profiles returns the tenant's profiles, and with system also those of the system.
func (c *Client) Profiles(ctx context.Context, system bool, read Read) ([]profile.Profile, Meta, error) {
	var out []profile.Profile
	m, err := c.get(ctx, "/v1/profiles", read, values("includeSystem", strconv.FormatBool(system)), &out)
	return out, m, err
}

// Profile returns a profile. The name of a profile of the system is SYSTEM:name.
func (c *Client) Profile(ctx context.Context, name string, read Read) (api.ProfileDetails, Meta, error) {
	var out api.ProfileDetails
	m, err := c.get(ctx, "/v1/profiles/"+seg(name), read, nil, &out)
	return out, m, err
}

// PutProfile creates or changes a profile.
func (c *Client) PutProfile(ctx context.Context, name string, p profile.Profile) (profile.Profile, Meta, error) {
	var out profile.Profile
	m, err := c.send(ctx, http.MethodPut, "/v1/profiles/"+seg(name), nil, p, &out)
	return out, m, err
}

// DeleteProfile deletes a profile.
func (c *Client) DeleteProfile(ctx context.Context, name string) error {
	_, err := c.send(ctx, http.MethodDelete, "/v1/profiles/"+seg(name), nil, nil, nil)
	return err
}

// EnableProfile enables or disables a profile.
func (c *Client) EnableProfile(ctx context.Context, name string, enable bool) error {
	_, err := c.send(ctx, http.MethodPost, "/v1/profiles/"+seg(name)+"/"+enabling(enable), nil, nil, nil)
	return err
}

func enabling(enable bool) string {
	if enable {
		return "enable"
	}
	return "disable"
}

// Provisioners returns the provisioners, which create the clusters of runs.
func (c *Client) Provisioners(ctx context.Context, read Read) ([]profile.Spec, Meta, error) {
	var out []profile.Spec
	m, err := c.get(ctx, "/v1/provisioners", read, nil, &out)
	return out, m, err
}

// PutPreferences writes the preferences of a program, or of the tenant if program is "".
func (c *Client) PutPreferences(ctx context.Context, program string, properties map[string]string) error {
	_, err := c.send(ctx, http.MethodPut, preferencesPath(program), nil, api.SettingsBody{Properties: properties}, nil)
	return err
}

// Preferences returns the preferences of a program, or of the tenant if program is "".
func (c *Client) Preferences(ctx context.Context, program string, read Read) (profile.Settings, Meta, error) {
	var out profile.Settings
	m, err := c.get(ctx, preferencesPath(program), read, nil, &out)
	return out, m, err
}

func preferencesPath(program string) string {
	if program == "" {
		return "/v1/preferences"
	}
	return "/v1/programs/" + seg(program) + "/preferences"
}

// PutSecret stores a secret that properties and programs may refer to.
func (c *Client) PutSecret(ctx context.Context, name string, s api.SecretBody) error {
	_, err := c.send(ctx, http.MethodPut, "/v1/secrets/"+seg(name), nil, s, nil)
	return err
}

// Secret returns who may refer to a secret.
func (c *Client) Secret(ctx context.Context, name string, read Read) (api.Secret, Meta, error) {
	var out api.Secret
	m, err := c.get(ctx, "/v1/secrets/"+seg(name), read, nil, &out)
	return out, m, err
}

// Search returns programs and schedules that match a query such as "profile:SYSTEM:small".
func (c *Client) Search(ctx context.Context, query string, read Read) ([]api.Found, Meta, error) {
	var out []api.Found
	m, err := c.get(ctx, "/v1/search", read, values("query", query), &out)
	return out, m, err
}

// Secrets returns the names of the tenant's secrets.
func (c *Client) Secrets(ctx context.Context, read Read) ([]string, Meta, error) {
	var out []string
	m, err := c.get(ctx, "/v1/secrets", read, nil, &out)
	return out, m, err
}

// DeleteSecret deletes a secret.
func (c *Client) DeleteSecret(ctx context.Context, name string) error {
	_, err := c.send(ctx, http.MethodDelete, "/v1/secrets/"+seg(name), nil, nil, nil)
	return err
}
