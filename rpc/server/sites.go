package server

import (
	"context"
	"net/http"
	"time"

	"github.com/coopr/coopr/engine/change/site"
	"github.com/coopr/coopr/engine/model"
	"github.com/coopr/coopr/rpc/api"
)

// BySite names a site in the path.
type BySite struct {
	Site string `path:"site" doc:"The site's name"`
}

// longestLook bounds the check of a whole site.
const longestLook = time.Minute

func (s *server) siteRoutes() {
	const tag, one = "sites", "/v1/sites/{site}"
	see, use := rule{need: model.RoleRead}, rule{need: model.RoleUser}
	get := func(id, path, summary string) route {
		return route{id: id, method: http.MethodGet, path: path, tag: tag, rule: see, summary: summary}
	}
	ask(s, get("listSites", "/v1/sites", "List the sites of change objects"), func(ctx context.Context, c *call, _ *none) ([]site.Overview, error) {
		return s.Sites.List(ctx, c.who.Tenant)
	})
	watched := get("getSiteStatus", one+"/status", "Get the status of a site's objects, as their hosts report it")
	watched.rule.watches = true
	ask(s, watched, func(ctx context.Context, c *call, in *struct {
		BySite
		After uint64 `query:"after" doc:"Wait until the revision is another than this one, for at most a minute"`
	}) (site.SiteStatus, error) {
		ctx, cancel := context.WithTimeout(ctx, defaultWait)
		defer cancel()
		return s.Sites.Status(ctx, c.who.Tenant, in.Site, in.After)
	})
	ask(s, get("getSite", one, "Get a site's document"), func(_ context.Context, c *call, in *struct {
		BySite
		Generation uint64 `query:"generation" doc:"An earlier generation; absent: the newest"`
	}) (*site.Document, error) {
		return s.Sites.Document(c.who.Tenant, in.Site, in.Generation)
	})
	ask(s, get("getSiteHistory", one+"/history", "The generations of a site that are kept, the newest first"), func(_ context.Context, c *call, in *BySite) ([]site.PastGeneration, error) {
		return s.Sites.History(c.who.Tenant, in.Site)
	})
	ask(s, get("getSiteGraph", one+"/graph", "A site's objects and their dependencies"), func(_ context.Context, c *call, in *BySite) (*site.Graph, error) {
		return s.Sites.Graph(c.who.Tenant, in.Site)
	})
	ask(s, get("explainObject", one+"/explain", "What an object waits for, followed to the root; empty where it is settled"), func(_ context.Context, c *call, in *struct {
		BySite
		Object string `query:"object" required:"true" doc:"The object's name"`
	}) ([]site.Reason, error) {
		return s.Sites.Explain(c.who.Tenant, in.Site, in.Object)
	})
	ask(s, route{id: "checkSite", method: http.MethodPost, path: one + "/check", tag: tag, rule: use, summary: "Compare every object of a site with the real thing, and change nothing"},
		func(ctx context.Context, c *call, in *BySite) ([]site.Finding, error) {
			ctx, cancel := context.WithTimeout(ctx, longestLook)
			defer cancel()
			return s.Sites.Check(ctx, c.who.Tenant, in.Site)
		})
	ask(s, route{id: "planSite", method: http.MethodPost, path: "/v1/sites", tag: tag, rule: use, summary: "Preview the application of a document"},
		func(_ context.Context, c *call, in *struct{ Body raw[site.Document] }) (site.ChangePreview, error) {
			doc, err := in.Body.value()
			if err != nil {
				return site.ChangePreview{}, err
			}
			return s.Sites.Preview(c.who.Tenant, &doc)
		})
	write(s, route{id: "applySite", method: http.MethodPut, path: one, status: http.StatusAccepted, tag: tag, rule: use, summary: "Apply a document as the next generation of a site"},
		func(ctx context.Context, c *call, in *struct {
			BySite
			Body raw[site.Document]
		}) (api.SiteApplied, api.Written, error) {
			doc, err := in.Body.value()
			if err != nil {
				return api.SiteApplied{}, api.Written{}, err
			}
			if doc.Name != in.Site {
				return api.SiteApplied{}, api.Written{}, invalid(model.Faults{{Path: "name", Message: "is " + doc.Name + ", but the path says " + in.Site}})
			}
			p, unchanged, w, err := s.Sites.Apply(ctx, c.who, &doc)
			return api.SiteApplied{ChangePreview: p, Unchanged: unchanged}, w, err
		})
	write(s, route{id: "revertSite", method: http.MethodPost, path: one + "/revert", status: http.StatusAccepted, tag: tag, rule: use, optional: true, summary: "Apply the content of an earlier generation again"},
		func(ctx context.Context, c *call, in *struct {
			BySite
			Body raw[api.RevertBody]
		}) (api.SiteApplied, api.Written, error) {
			body, err := in.Body.value()
			if err != nil {
				return api.SiteApplied{}, api.Written{}, err
			}
			p, unchanged, w, err := s.Sites.Revert(ctx, c.who, in.Site, body.Generation)
			return api.SiteApplied{ChangePreview: p, Unchanged: unchanged}, w, err
		})
	write(s, route{id: "deleteSite", method: http.MethodDelete, path: one, status: http.StatusAccepted, tag: tag, rule: use, summary: "Take all objects of a site down in order, and delete the site"},
		func(ctx context.Context, c *call, in *BySite) (api.SiteApplied, api.Written, error) {
			p, w, err := s.Sites.Delete(ctx, c.who, in.Site)
			return api.SiteApplied{ChangePreview: p}, w, err
		})
	write(s, route{id: "releaseObject", method: http.MethodPost, path: one + "/release", tag: tag, rule: rule{need: model.RoleAdmin}, summary: "Record that an object on a lost host holds nothing",
		description: "An object whose host does not answer counts as holding what it held before. An administrator who knows better says so, with a reason that the audit log keeps."},
		func(ctx context.Context, c *call, in *struct {
			BySite
			Body raw[api.ReleaseBody]
		}) (api.Done, api.Written, error) {
			body, err := in.Body.value()
			if err != nil {
				return api.Done{}, api.Written{}, err
			}
			var faults model.Faults
			if body.Object == "" {
				faults.Add("object", "is missing")
			}
			if body.Reason == "" {
				faults.Add("reason", "is missing: give the evidence, which the audit log keeps")
			}
			if len(faults) > 0 {
				return api.Done{}, api.Written{}, invalid(faults)
			}
			w, err := s.Sites.Release(ctx, c.who, in.Site, body.Object, body.Reason)
			return api.Done{Done: err == nil}, w, err
		})
}
