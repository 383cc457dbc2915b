package access

import (
	"encoding/json"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/coopr/coopr/engine/model"
)

// routes lists for each route of the API the action, the type of resource, and the least role that
// the server requires today. Routes of one right are on one line. "mesh" resources belong to no
// tenant. No policy is asked about the routes of the first line.
const routes = `
public | -                    | getSelf healthz
read   | list Agent           | listAgents listMembers
read   | read Agent           | getAgent
read   | read Mesh            | getMetrics getStatus
super  | admin Mesh           | joinMesh leaveMesh listRaftPeers removeRaftPeer transferLeadership saveSnapshot restoreSnapshot
read   | list PluginType      | listAutomatorTypes listProviderTypes listPlugins
read   | read PluginType      | getAutomatorType getAutomatorTypeVersion listAutomatorTypeVersions getProviderType getProviderTypeVersion listProviderTypeVersions
admin  | create PluginType    | createAutomatorType createProviderType
admin  | update PluginType    | putAutomatorType putProviderType
admin  | delete PluginType    | deleteAutomatorType deleteAutomatorTypeVersion deleteProviderType deleteProviderTypeVersion
read   | list Template        | listClusterTemplates listPartialTemplates exportDefinitions
read   | read Template        | getClusterTemplate getClusterTemplateVersion listClusterTemplateVersions lintClusterTemplate getPartialTemplate getPartialTemplateVersion listPartialTemplateVersions
user   | use Template         | lintDefinitions solve
admin  | create Template      | createClusterTemplate createPartialTemplate importDefinitions
admin  | update Template      | putClusterTemplate putPartialTemplate
admin  | delete Template      | deleteClusterTemplate deleteClusterTemplateVersion deletePartialTemplate deletePartialTemplateVersion
read   | list Service         | listServices
read   | read Service         | getService getServiceVersion listServiceVersions
admin  | create Service       | createService
admin  | update Service       | putService
admin  | delete Service       | deleteService deleteServiceVersion
read   | list Provider        | listProviders
read   | read Provider        | getProvider getProviderVersion listProviderVersions
admin  | create Provider      | createProvider
admin  | update Provider      | putProvider
admin  | delete Provider      | deleteProvider deleteProviderVersion
read   | list HardwareType    | listHardwareTypes
read   | read HardwareType    | getHardwareType getHardwareTypeVersion listHardwareTypeVersions
admin  | create HardwareType  | createHardwareType
admin  | update HardwareType  | putHardwareType
admin  | delete HardwareType  | deleteHardwareType deleteHardwareTypeVersion
read   | list ImageType       | listImageTypes
read   | read ImageType       | getImageType getImageTypeVersion listImageTypeVersions
admin  | create ImageType     | createImageType
admin  | update ImageType     | putImageType
admin  | delete ImageType     | deleteImageType deleteImageTypeVersion
read   | list Cluster         | listClusters listOperations watchEvents
read   | read Cluster         | getCluster getClusterConfig diffCluster getClusterHealth listClusterHistory getClusterSnapshot listClusterServices debugPlans listPlans getPlan getOperation explainOperation
user   | create Cluster       | createCluster
user   | update Cluster       | putClusterConfig growCluster shrinkCluster addServicesCluster removeServicesCluster upgradeCluster syncTemplateCluster rollbackCluster
user   | delete Cluster       | deleteCluster
user   | operate Cluster      | configureCluster startCluster stopCluster restartCluster startService stopService restartService pauseNodeCluster resumeNodeCluster replaceNodeCluster recoverCluster pauseRecovery resumeRecovery resolveCluster startPlan stopPlan restartPlan continuePlan interruptPlan forceCompletePlan pauseOperation resumeOperation abortOperation rollbackOperation
read   | list Node            | listNodes listPods getPods listOperationTasks
read   | read Node            | getNode getPod getPodInfo getTask getTaskLog
user   | operate Node         | pausePod resumePod restartPod replacePod
admin  | admin Tenant         | listAudit exportAudit verifyAudit getOrphans lookForOrphans removeOrphan
read   | list Tenant          | listTenants
read   | read Tenant          | getTenant
super  | create Tenant        | createTenant
super  | update Tenant        | putTenant
super  | delete Tenant        | deleteTenant
admin  | list Token           | listTokens
admin  | create Token         | createToken
admin  | delete Token         | deleteToken
read   | list PluginResource  | listResources listResourcesOfType listResourceVersions
read   | read PluginResource  | getResourceVersion getResourceContent
admin  | create PluginResource | uploadResource
admin  | delete PluginResource | deleteResource deleteResourceVersion
admin  | operate PluginResource | syncResources activateResource recallResource stageResource
read   | list Profile         | listProfiles listProvisioners search
read   | read Profile         | getProfile getProfileStatus getProvisioner getPreferences
admin  | update Profile       | putProfile enableProfile disableProfile putPreferences
admin  | delete Profile       | deleteProfile deletePreferences
read   | read mesh Profile    | getSystemPreferences
super  | update mesh Profile  | putSystemPreferences
super  | delete mesh Profile  | deleteSystemPreferences
read   | list Program         | listPrograms
read   | read Program         | getProgram getProgramPreferences
user   | update Program       | putProgram
user   | delete Program       | deleteProgram
user   | execute Program      | startProgram
admin  | admin Tenant         | putProgramPreferences deleteProgramPreferences
read   | list Run             | listRuns
read   | read Run             | getRun getRunLog
user   | create Run           | startRun
user   | operate Run          | stopRun extendRun retryRun deprovisionRun
admin  | admin Run            | forceRun purgeRun
read   | list Schedule        | listSchedules
read   | read Schedule        | getSchedule
user   | update Schedule      | putSchedule
user   | delete Schedule      | deleteSchedule
user   | operate Schedule     | enableSchedule disableSchedule
read   | list Secret          | listSecrets
read   | read Secret          | getSecret
admin  | update Secret        | putSecret
admin  | delete Secret        | deleteSecret
read   | list Site            | listSites
read   | read Site            | getSite getSiteGraph getSiteHistory getSiteStatus explainObject
user   | update Site          | applySite planSite revertSite
user   | delete Site          | deleteSite
user   | operate Site         | checkSite
admin  | admin Site           | releaseObject
`

// today returns the server's decision today (rest.AtLeast, rest.sees, runs.findRun): the role has
// to reach the route's, users see only clusters and runs of their own, and only a superadmin acts
// in another tenant.
func today(have, need model.Role, of Type, inTenant, own, usual bool) bool {
	order := []model.Role{model.RoleRead, model.RoleUser, model.RoleAdmin, model.RoleSuperadmin}
	if slices.Index(order, have) < slices.Index(order, need) {
		return false
	}
	if inTenant && !usual && have != model.RoleSuperadmin {
		return false
	}
	owned := of == TypeCluster || of == TypeNode || of == TypeRun
	return !owned || own || have != model.RoleUser
}

// TestRoutes asks for each route of the API's document, each built-in policy, and each resource. The
// answers for the four roles are those of the server.
func TestRoutes(t *testing.T) {
	raw, err := os.ReadFile("../../docs/openapi.json")
	if err != nil {
		t.Fatal(err)
	}
	var doc struct {
		Paths map[string]map[string]struct{ OperationID string }
	}
	if err := json.Unmarshal(raw, &doc); err != nil {
		t.Fatal(err)
	}
	open := map[string]bool{}
	for _, item := range doc.Paths {
		for _, op := range item {
			open[op.OperationID] = true
		}
	}
	needs := map[string]model.Role{"read": model.RoleRead, "user": model.RoleUser, "admin": model.RoleAdmin, "super": model.RoleSuperadmin}
	roles := map[string]model.Role{"viewer": model.RoleRead, "user": model.RoleUser, "tenant-admin": model.RoleAdmin, "superadmin": model.RoleSuperadmin}
	plain := sets(t, nil)
	asked := 0
	for line := range strings.Lines(strings.TrimSpace(routes)) {
		part := strings.Split(line, "|")
		ids := strings.Fields(part[2])
		for _, id := range ids {
			if !open[id] {
				t.Errorf("route %s is no route of the API, or has two rows", id)
			}
			delete(open, id)
		}
		if strings.TrimSpace(part[0]) == "public" {
			continue
		}
		need, right := needs[strings.TrimSpace(part[0])], strings.Fields(part[1])
		action, of := Action(right[0]), Type(right[len(right)-1])
		inTenant := of != TypeMesh && of != TypeAgent && len(right) == 2
		if !Applies(action, of) {
			t.Errorf("%s: the schema has no action %s on %s", ids, action, of)
			continue
		}
		for _, c := range []struct{ whose, tenant, owner string }{
			{"own", "acme", "ann"}, {"other's", "acme", "bob"}, {"shared", "acme", "bob"}, {"other tenant's", "other", "ann"},
		} {
			x := Resource{Ref: Ref{of, "x"}, Tenant: c.tenant, Row: &Attributes{Values: map[string]any{"owner": c.owner}}}
			if !inTenant {
				x.Tenant = ""
			}
			shared := sets(t, []Grant{{ID: "g", Granter: who("bob", "acme", "tenant-admin"), Grantee: Ref{TypeUser, "ann"}, Actions: []Action{action}, Resource: x.Ref}})
			for _, name := range BuiltinNames {
				r := &Request{Principal: who("ann", "acme", name), Action: action, Resource: x}
				set := plain
				if c.whose == "shared" {
					set = shared
				}
				asked++
				got := set.Decide(r)
				granter := *r
				granter.Principal = who("bob", "acme", "tenant-admin")
				role, ok := roles[name]
				if ok {
					want := today(role, need, of, inTenant, c.owner == "ann", c.tenant == "acme")
					want = want || c.whose == "shared" && inTenant && plain.Decide(&granter).Allowed
					if got.Allowed != want {
						t.Errorf("%s: %s %s, %s, %s: got %+v, want %t", ids[0], action, of, name, c.whose, got, want)
					}
				}
				if c.whose == "other tenant's" && inTenant && got.Allowed && name != "operator" && name != "superadmin" {
					t.Errorf("%s: %s reaches another tenant's %s", ids[0], name, of)
				}
				if name == "operator" && of == TypeSecret && c.whose != "shared" && got.Allowed {
					t.Errorf("%s: operators reach a tenant's secrets", ids[0])
				}
			}
		}
	}
	for id := range open {
		t.Errorf("route %s has no row: name its action and its type of resource", id)
	}
	if asked < 1000 {
		t.Errorf("only %d questions", asked)
	}
}

// TestHostExec checks the rights that no route has: only superadmin may use control hosts, and no
// built-in policy reveals secrets.
func TestHostExec(t *testing.T) {
	s := sets(t, nil)
	for _, name := range BuiltinNames {
		p := who("ann", "acme", name)
		for _, tenant := range []string{"acme", "other"} {
			if got := s.Decide(&Request{Principal: p, Action: HostExec, Resource: Resource{Ref: Ref{TypeTenant, tenant}, Tenant: tenant}}); got.Allowed != (name == "superadmin") {
				t.Errorf("host:exec for %s: %+v", name, got)
			}
			if got := s.Decide(&Request{Principal: p, Action: Reveal, Resource: Resource{Ref: Ref{TypeSecret, "s"}, Tenant: tenant}}); got.Allowed {
				t.Errorf("%s reveals secrets", name)
			}
		}
	}
}
