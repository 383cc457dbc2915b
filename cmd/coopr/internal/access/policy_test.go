package access_test

import (
	"testing"

	"github.com/coopr/coopr/rpc/server/apitest"

	"github.com/coopr/coopr/cmd/coopr/internal/clitest"
)

// TestPolicies is the story of a tenant's guard rails.
func TestPolicies(t *testing.T) {
	s := clitest.New(t)
	s.Definitions()
	s.Exec("import", "defs")
	s.File("rails.cedar", `@id("size") @message("ask the platform team, which sets the label approved")
forbid (principal, action in [Action::"create", Action::"update"], resource is Cluster)
when { context.after.size > 2 && !resource.hasTag("approved") };

@id("approval") @message("administrators approve")
forbid (principal, action == Action::"label", resource is Cluster)
when { context.label == "approved" }
unless { principal in Group::"tenant-admin" };
`)
	s.File("wrong.cedar", `permit (principal == User::"bobb", action == Action::"delte", resource);`)
	s.Run(0, "policy", "list")
	s.Run(1, "policy", "put", "wrong", "wrong.cedar")
	s.Run(0, "policy", "put", "rails", "rails.cedar", "--description", "Guard rails")
	s.Run(0, "policy", "list")
	s.Run(0, "policy", "get", "rails")
	s.Run(1, "policy", "put", "rails", "rails.cedar", "--mesh")
	s.As(apitest.User)
	s.Run(1, "cluster", "create", "big", "--template", "shop", "--nodes", "3", "--dry-run")
	s.Run(1, "cluster", "create", "big", "--template", "shop", "--nodes", "3", "--label", "approved", "--dry-run")
	s.Run(0, "cluster", "create", "shop", "--template", "shop", "--nodes", "2", "--label", "env=dev", "--yes", "--detach")
	s.Run(1, "cluster", "label", "shop", "approved")
	s.Run(0, "cluster", "label", "shop", "env=test", "team=web")
	s.Run(0, "cluster", "label", "shop", "team-")
	s.Run(0, "auth", "can-i", "delete", "cluster/shop")
	s.Run(1, "auth", "can-i", "update", "template/shop")
	s.Run(1, "auth", "can-i", "delte", "clustr/shop")
	s.As(apitest.Admin)
	s.Run(0, "auth", "can-i", "delete", "cluster/shop", "--as", "bob")
	s.Run(0, "cluster", "label", "shop", "approved")
	s.Run(0, "policy", "delete", "rails", "--yes")
	s.Golden("policies")
}
