package client

import (
	"context"
	"encoding/json"
	"net/http"
	"net/url"
	"strconv"

	"github.com/coopr/coopr/engine/model"
	"github.com/coopr/coopr/rpc/api"
)

// Definitions returns the latest version of each definition of a kind, as JSON.
func (c *Client) Definitions(ctx context.Context, kind model.Kind, read Read) ([]json.RawMessage, Meta, error) {
	var out []json.RawMessage
	m, err := c.get(ctx, "/v1/"+seg(string(kind)), read, nil, &out)
	return out, m, err
}

// Definition returns one version of a definition; version 0 is the latest.
func (c *Client) Definition(ctx context.Context, kind model.Kind, name string, version int, read Read) (json.RawMessage, Meta, error) {
	var out json.RawMessage
	m, err := c.get(ctx, definitionPath(kind, name, version), read, nil, &out)
	return out, m, err
}

func definitionPath(kind model.Kind, name string, version int) string {
	path := "/v1/" + seg(string(kind)) + "/" + seg(name)
	if version > 0 {
		path += "/versions/" + strconv.Itoa(version)
	}
	return path
}

// Versions returns all versions of a definition.
func (c *Client) Versions(ctx context.Context, kind model.Kind, name string, read Read) ([]json.RawMessage, Meta, error) {
	var out []json.RawMessage
	m, err := c.get(ctx, definitionPath(kind, name, 0)+"/versions", read, nil, &out)
	return out, m, err
}

// PutDefinition writes a new version of a definition, as JSON, and returns it as it was stored.
func (c *Client) PutDefinition(ctx context.Context, kind model.Kind, name string, body json.RawMessage) (json.RawMessage, Meta, error) {
	var out json.RawMessage
	m, err := c.send(ctx, http.MethodPut, definitionPath(kind, name, 0), nil, body, &out)
	return out, m, err
}

// CreateDefinition writes a definition that must not exist yet.
func (c *Client) CreateDefinition(ctx context.Context, kind model.Kind, body json.RawMessage) (json.RawMessage, Meta, error) {
	var out json.RawMessage
	m, err := c.send(ctx, http.MethodPost, "/v1/"+seg(string(kind)), nil, body, &out)
	return out, m, err
}

// DeleteDefinition deletes one version of a definition; version 0 means all. Without force, the
// server refuses to delete a definition that is in use.
func (c *Client) DeleteDefinition(ctx context.Context, kind model.Kind, name string, version int, force bool) (Meta, error) {
	return c.send(ctx, http.MethodDelete, definitionPath(kind, name, version), forceQuery(force), nil, nil)
}

// Import writes many definitions at once, all or none, or with dryRun only checks them. The body is
// what Export returns, or any other shape that the API's import reads.
func (c *Client) Import(ctx context.Context, body any, dryRun bool) (api.Imported, Meta, error) {
	var out api.Imported
	m, err := c.send(ctx, http.MethodPost, "/v1/import", dry(dryRun), body, &out)
	return out, m, err
}

// Export returns all definitions of the tenant.
func (c *Client) Export(ctx context.Context, read Read) (api.Definitions, Meta, error) {
	var out api.Definitions
	m, err := c.get(ctx, "/v1/export", read, nil, &out)
	return out, m, err
}

// Tenants returns the tenants that the caller may see.
func (c *Client) Tenants(ctx context.Context, read Read) ([]model.Tenant, Meta, error) {
	var out []model.Tenant
	m, err := c.get(ctx, "/v1/tenants", read, nil, &out)
	return out, m, err
}

// TenantByName returns a tenant with the use of its limits.
func (c *Client) TenantByName(ctx context.Context, name string, read Read) (api.TenantUse, Meta, error) {
	var out api.TenantUse
	m, err := c.get(ctx, "/v1/tenants/"+seg(name), read, nil, &out)
	return out, m, err
}

// PutTenant creates or changes a tenant.
func (c *Client) PutTenant(ctx context.Context, t model.Tenant) (model.Tenant, Meta, error) {
	var out model.Tenant
	m, err := c.send(ctx, http.MethodPut, "/v1/tenants/"+seg(t.Name), nil, t, &out)
	return out, m, err
}

// CreateTenant creates a tenant that must not exist yet.
func (c *Client) CreateTenant(ctx context.Context, t model.Tenant) (model.Tenant, Meta, error) {
	var out model.Tenant
	m, err := c.send(ctx, http.MethodPost, "/v1/tenants", nil, t, &out)
	return out, m, err
}

// DeleteTenant deletes a tenant that has no clusters.
func (c *Client) DeleteTenant(ctx context.Context, name string) (Meta, error) {
	return c.send(ctx, http.MethodDelete, "/v1/tenants/"+seg(name), nil, nil, nil)
}

// Tokens returns the tenant's tokens, without their secrets.
func (c *Client) Tokens(ctx context.Context, read Read) ([]model.Token, Meta, error) {
	var out []model.Token
	m, err := c.get(ctx, "/v1/tokens", read, nil, &out)
	return out, m, err
}

// Self returns the caller that the client's token belongs to, with the tenant in which its requests act.
func (c *Client) Self(ctx context.Context) (api.Self, error) {
	var out api.Self
	_, err := c.ask(ctx, "/v1/self", nil, &out)
	return out, err
}

// CanI asks whether the caller, or with as another user, may do something with a resource "TYPE/NAME".
func (c *Client) CanI(ctx context.Context, action, resource, as string) (api.Permission, error) {
	q := url.Values{"action": {action}, "resource": {resource}}
	if as != "" {
		q.Set("as", as)
	}
	var out api.Permission
	_, err := c.ask(ctx, "/v1/can-i", q, &out)
	return out, err
}

// policyPath returns the path of the policy documents of the mesh, or of a tenant.
func policyPath(mesh bool) string {
	if mesh {
		return "/v1/mesh/policies"
	}
	return "/v1/policies"
}

// Policies returns the policy documents of the tenant, or of the mesh.
func (c *Client) Policies(ctx context.Context, mesh bool, read Read) ([]model.Policies, Meta, error) {
	var out []model.Policies
	m, err := c.get(ctx, policyPath(mesh), read, nil, &out)
	return out, m, err
}

// PolicyDocument returns a policy document of the tenant, or of the mesh.
func (c *Client) PolicyDocument(ctx context.Context, mesh bool, name string, read Read) (model.Policies, Meta, error) {
	var out model.Policies
	m, err := c.get(ctx, policyPath(mesh)+"/"+seg(name), read, nil, &out)
	return out, m, err
}

// PutPolicyDocument writes a policy document. Without force the mesh refuses policies after which no user
// could change them.
func (c *Client) PutPolicyDocument(ctx context.Context, mesh bool, doc model.Policies, force bool) (model.Policies, Meta, error) {
	var out model.Policies
	m, err := c.send(ctx, http.MethodPut, policyPath(mesh)+"/"+seg(doc.Name), forceQuery(force), doc, &out)
	return out, m, err
}

// DeletePolicyDocument deletes a policy document with all its versions.
func (c *Client) DeletePolicyDocument(ctx context.Context, mesh bool, name string, force bool) (Meta, error) {
	return c.send(ctx, http.MethodDelete, policyPath(mesh)+"/"+seg(name), forceQuery(force), nil, nil)
}

func forceQuery(force bool) url.Values {
	if force {
		return url.Values{"force": {"true"}}
	}
	return nil
}

// CreateToken issues a token.
func (c *Client) CreateToken(ctx context.Context, t api.NewToken) (api.IssuedToken, Meta, error) {
	var out api.IssuedToken
	m, err := c.sendSingle(ctx, http.MethodPost, "/v1/tokens", t, &out)
	return out, m, err
}

// DeleteToken revokes a token.
func (c *Client) DeleteToken(ctx context.Context, id string) (Meta, error) {
	return c.send(ctx, http.MethodDelete, "/v1/tokens/"+seg(id), nil, nil, nil)
}

func values(pairs ...string) url.Values {
	q := url.Values{}
	for i := 0; i+1 < len(pairs); i += 2 {
		if pairs[i+1] != "" {
			q.Set(pairs[i], pairs[i+1])
		}
	}
	return q
}
