package client

import (
	"context"
	"net/http"

	"github.com/coopr/coopr/engine/model"
	"github.com/coopr/coopr/rpc/api"
)

// Login opens a session. The client itself goes on with its token.
func (c *Client) Login(ctx context.Context, l api.Login) (api.IssuedToken, error) {
	var out api.IssuedToken
	_, err := c.sendSingle(ctx, http.MethodPost, "/v1/login", l, &out)
	return out, err
}

// BeginLogin starts a login on the pages of an identity provider.
func (c *Client) BeginLogin(ctx context.Context, l api.BeginLogin) (api.LoginPrompt, error) {
	var out api.LoginPrompt
	_, err := c.sendSingle(ctx, http.MethodPost, "/v1/login/begin", l, &out)
	return out, err
}

// FinishLogin asks for the session of such a login. It has no token as long as nobody has logged in.
func (c *Client) FinishLogin(ctx context.Context, l api.FinishLogin) (api.FinishedLogin, error) {
	var out api.FinishedLogin
	_, err := c.sendSingle(ctx, http.MethodPost, "/v1/login/finish", l, &out)
	return out, err
}

// Logout ends the session whose token the client has.
func (c *Client) Logout(ctx context.Context) (Meta, error) {
	return c.send(ctx, http.MethodPost, "/v1/logout", nil, nil, nil)
}

// RenewSession prolongs the session whose token the client has.
func (c *Client) RenewSession(ctx context.Context) (model.Token, error) {
	var out model.Token
	_, err := c.send(ctx, http.MethodPost, "/v1/self/renew", nil, nil, &out)
	return out, err
}

// ChangePassword changes the caller's password. It needs a session.
func (c *Client) ChangePassword(ctx context.Context, p api.NewPassword) (Meta, error) {
	return c.send(ctx, http.MethodPut, "/v1/self/password", nil, p, nil)
}

// OwnTokens returns the caller's tokens and sessions.
func (c *Client) OwnTokens(ctx context.Context, r Read) ([]model.Token, Meta, error) {
	var out []model.Token
	m, err := c.get(ctx, "/v1/self/tokens", r, nil, &out)
	return out, m, err
}

// CreateOwnToken makes a token of the caller's own.
func (c *Client) CreateOwnToken(ctx context.Context, t api.OwnToken) (api.IssuedToken, Meta, error) {
	var out api.IssuedToken
	m, err := c.sendSingle(ctx, http.MethodPost, "/v1/self/tokens", t, &out)
	return out, m, err
}

// DeleteOwnToken revokes a token of the caller's own.
func (c *Client) DeleteOwnToken(ctx context.Context, id string) (Meta, error) {
	return c.send(ctx, http.MethodDelete, "/v1/self/tokens/"+seg(id), nil, nil, nil)
}

// Users returns the tenant's users.
func (c *Client) Users(ctx context.Context, r Read) ([]model.User, Meta, error) {
	var out []model.User
	m, err := c.get(ctx, "/v1/users", r, nil, &out)
	return out, m, err
}

// User returns a user.
func (c *Client) User(ctx context.Context, name string, r Read) (model.User, Meta, error) {
	var out model.User
	m, err := c.get(ctx, "/v1/users/"+seg(name), r, nil, &out)
	return out, m, err
}

// CreateUser creates a user.
func (c *Client) CreateUser(ctx context.Context, u api.NewUser) (model.User, Meta, error) {
	var out model.User
	m, err := c.send(ctx, http.MethodPost, "/v1/users", nil, u, &out)
	return out, m, err
}

// ChangeUser changes a user. Absent fields stay as they are.
func (c *Client) ChangeUser(ctx context.Context, name string, u api.UserChange) (model.User, Meta, error) {
	var out model.User
	m, err := c.send(ctx, http.MethodPut, "/v1/users/"+seg(name), nil, u, &out)
	return out, m, err
}

// DeleteUser deletes a user and ends its tokens.
func (c *Client) DeleteUser(ctx context.Context, name string) (Meta, error) {
	return c.send(ctx, http.MethodDelete, "/v1/users/"+seg(name), nil, nil, nil)
}

// Grants returns the grants that the caller may see.
func (c *Client) Grants(ctx context.Context, r Read) ([]model.Grant, Meta, error) {
	var out []model.Grant
	m, err := c.get(ctx, "/v1/grants", r, nil, &out)
	return out, m, err
}

// CreateGrant shares a resource.
func (c *Client) CreateGrant(ctx context.Context, g api.NewGrant) (model.Grant, Meta, error) {
	var out model.Grant
	m, err := c.send(ctx, http.MethodPost, "/v1/grants", nil, g, &out)
	return out, m, err
}

// DeleteGrant removes a grant.
func (c *Client) DeleteGrant(ctx context.Context, id string) (Meta, error) {
	return c.send(ctx, http.MethodDelete, "/v1/grants/"+seg(id), nil, nil, nil)
}
