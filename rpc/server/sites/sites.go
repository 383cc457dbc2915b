package sites

import (
	"context"
	"net/http"
	"time"

	"github.com/coopr/coopr/engine/access"
	"github.com/coopr/coopr/engine/change/site"
	"github.com/coopr/coopr/engine/model"
	"github.com/coopr/coopr/rpc/api"
	"github.com/coopr/coopr/rpc/server/rest"
)

// BySite names a site in the path.
type BySite struct {
	Site string `path:"site" doc:"The site's name"`
}

// longestCheck bounds the check of a whole site.
const longestCheck = time.Minute

// Register adds the routes.
func Register(s *rest.Server) {
	const tag, one = "sites", "/v1/sites/{site}"
	get := func(id, path, summary string) rest.Route {
		return rest.Route{ID: id, Method: http.MethodGet, Path: path, Tag: tag, Summary: summary}
	}
	rest.AskList(
		s,
		rest.Route{ID: "listSites", Path: "/v1/sites", Tag: tag, Order: "name", Summary: "List the sites of change objects"},
		func(ctx context.Context, c *rest.Call, _ *rest.None) ([]site.Overview, error) {
			all, err := s.Sites.List(ctx, c.Who.Tenant)
			if err != nil {
				return nil, err
			}
			return rest.Listed(c, access.TypeSite, all, func(o site.Overview) string { return o.Name })
		},
	)
	watched := get("getSiteStatus", one+"/status", "Get the status of a site's objects, as their hosts report it")
	watched.Rule.Watches = true
	rest.Ask(s, watched, func(ctx context.Context, c *rest.Call, in *struct {
		BySite
		After uint64 `query:"after" doc:"Wait until the revision is another than this one, for at most a minute"`
	}) (site.SiteStatus, error) {
		ctx, cancel := context.WithTimeout(ctx, rest.DefaultWait)
		defer cancel()
		return s.Sites.Status(ctx, c.Who.Tenant, in.Site, in.After)
	})
	rest.Ask(s, get("getSite", one, "Get a site's document"), func(_ context.Context, c *rest.Call, in *struct {
		BySite
		Generation uint64 `query:"generation" doc:"An earlier generation; absent: the newest"`
	}) (*site.Document, error) {
		return s.Sites.Document(c.Who.Tenant, in.Site, in.Generation)
	})
	rest.AskList(
		s,
		rest.Route{ID: "getSiteHistory", Path: one + "/history", Tag: tag, Order: "-number",
			Summary: "The generations of a site that are kept, the newest first"},
		func(_ context.Context, c *rest.Call, in *BySite) ([]site.PastGeneration, error) {
			return s.Sites.History(c.Who.Tenant, in.Site)
		},
	)
	rest.Ask(
		s,
		get("getSiteGraph", one+"/graph", "A site's objects and their dependencies"),
		func(_ context.Context, c *rest.Call, in *BySite) (*site.Graph, error) {
			return s.Sites.Graph(c.Who.Tenant, in.Site)
		},
	)
	rest.Ask(
		s,
		get("explainObject", one+"/explain", "What an object waits for, followed to the root; empty if it has converged"),
		func(_ context.Context, c *rest.Call, in *struct {
			BySite
			Object string `query:"object" required:"true" doc:"The object's name"`
		}) ([]site.Reason, error) {
			return s.Sites.Explain(c.Who.Tenant, in.Site, in.Object)
		},
	)
	rest.Ask(
		s,
		rest.Route{
			ID:      "checkSite",
			Method:  http.MethodPost,
			Path:    one + "/check",
			Tag:     tag,
			Summary: "Compare every object of a site with the real thing, and change nothing",
		},
		func(ctx context.Context, c *rest.Call, in *BySite) ([]site.Finding, error) {
			ctx, cancel := context.WithTimeout(ctx, longestCheck)
			defer cancel()
			return s.Sites.Check(ctx, c.Who.Tenant, in.Site)
		},
	)
	rest.Ask(
		s,
		rest.Route{
			ID:      "planSite",
			Method:  http.MethodPost,
			Path:    "/v1/sites",
			Tag:     tag,
			Summary: "Preview the application of a document",
		},
		func(_ context.Context, c *rest.Call, in *struct{ Body rest.Raw[site.Document] }) (site.ChangePreview, error) {
			doc, err := in.Body.Value()
			if err != nil {
				return site.ChangePreview{}, err
			}
			if err := c.MayNamed(access.Update, access.TypeSite, doc.Name); err != nil {
				return site.ChangePreview{}, err
			}
			return s.Sites.Preview(c.Who, &doc)
		},
	)
	rest.Write(
		s,
		rest.Route{
			ID:      "applySite",
			Method:  http.MethodPut,
			Path:    one,
			Status:  http.StatusAccepted,
			Tag:     tag,
			Summary: "Apply a document as the next generation of a site",
		},
		func(ctx context.Context, c *rest.Call, in *struct {
			BySite
			Body rest.Raw[site.Document]
		}) (api.SiteApplied, api.Written, error) {
			doc, err := in.Body.Value()
			if err != nil {
				return api.SiteApplied{}, api.Written{}, err
			}
			if doc.Name != in.Site {
				return api.SiteApplied{}, api.Written{}, rest.Invalid(
					model.Faults{{Path: "name", Message: "is " + doc.Name + ", but the path says " + in.Site}},
				)
			}
			p, unchanged, w, err := s.Sites.Apply(ctx, c.Who, &doc)
			return api.SiteApplied{ChangePreview: p, Unchanged: unchanged}, w, err
		},
	)
	rest.Write(
		s,
		rest.Route{
			ID:       "revertSite",
			Method:   http.MethodPost,
			Path:     one + "/revert",
			Status:   http.StatusAccepted,
			Tag:      tag,
			Optional: true,
			Summary:  "Apply the content of an earlier generation again",
		},
		func(ctx context.Context, c *rest.Call, in *struct {
			BySite
			Body rest.Raw[api.RevertBody]
		}) (api.SiteApplied, api.Written, error) {
			body, err := in.Body.Value()
			if err != nil {
				return api.SiteApplied{}, api.Written{}, err
			}
			p, unchanged, w, err := s.Sites.Revert(ctx, c.Who, in.Site, body.Generation)
			return api.SiteApplied{ChangePreview: p, Unchanged: unchanged}, w, err
		},
	)
	rest.Write(
		s,
		rest.Route{
			ID:      "deleteSite",
			Method:  http.MethodDelete,
			Path:    one,
			Status:  http.StatusAccepted,
			Tag:     tag,
			Summary: "Take all objects of a site down in order, and delete the site",
		},
		func(ctx context.Context, c *rest.Call, in *BySite) (api.SiteApplied, api.Written, error) {
			p, w, err := s.Sites.Delete(ctx, c.Who, in.Site)
			return api.SiteApplied{ChangePreview: p}, w, err
		},
	)
	rest.Write(
		s,
		rest.Route{
			ID:      "releaseObject",
			Method:  http.MethodPost,
			Path:    one + "/release",
			Tag:     tag,
			Summary: "Record that an object on a lost host holds nothing",
			Description: "An object whose host does not answer counts as holding what it held before. " +
				"An administrator who has evidence that it is gone releases it, with a reason that the audit log keeps.",
		},
		func(ctx context.Context, c *rest.Call, in *struct {
			BySite
			Body rest.Raw[api.ReleaseBody]
		}) (api.Done, api.Written, error) {
			body, err := in.Body.Value()
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
				return api.Done{}, api.Written{}, rest.Invalid(faults)
			}
			w, err := s.Sites.Release(ctx, c.Who, in.Site, body.Object, body.Reason)
			return api.Done{Done: err == nil}, w, err
		},
	)
}
