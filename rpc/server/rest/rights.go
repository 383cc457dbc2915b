package rest

import (
	"fmt"
	"strings"

	"github.com/coopr/coopr/engine/access"
)

// Right is what the caller of a route must be allowed to do. Every token may use a route without an action.
type Right struct {
	Action access.Action
	On     access.Type
	// Mesh is set if the resource belongs to the mesh itself and to no tenant.
	Mesh bool
}

// rightsTable has an action, a type of resource, and the routes that need this right. A resource of
// "mesh" belongs to no tenant. A route without a row cannot be registered.
const rightsTable = `
- -                    | getSelf canI renewSession logout changePassword listOwnTokens createOwnToken deleteOwnToken
- -                    | listGrants createGrant deleteGrant search
list Agent             | listAgents listMembers
read Agent             | getAgent
read Mesh              | getMetrics getStatus
admin Mesh             | joinMesh leaveMesh listRaftPeers removeRaftPeer transferLeadership saveSnapshot restoreSnapshot
admin Mesh             | resumeMesh getKeyring listJoinTokens createJoinToken deleteJoinToken
admin Mesh             | listAuditSinks listRotations createRotation getAgentLog examineAgent
list PluginType        | listAutomatorTypes listProviderTypes listPlugins
read PluginType        | getAutomatorType getAutomatorTypeVersion listAutomatorTypeVersions getProviderType getProviderTypeVersion
read PluginType        | listProviderTypeVersions
create PluginType      | createAutomatorType createProviderType
update PluginType      | putAutomatorType putProviderType
delete PluginType      | deleteAutomatorType deleteAutomatorTypeVersion deleteProviderType deleteProviderTypeVersion
list Template          | listClusterTemplates listPartialTemplates exportDefinitions
read Template          | getClusterTemplate getClusterTemplateVersion listClusterTemplateVersions lintClusterTemplate getPartialTemplate
read Template          | getPartialTemplateVersion listPartialTemplateVersions
use Template           | lintDefinitions solve
create Template        | createClusterTemplate createPartialTemplate
update Template        | putClusterTemplate putPartialTemplate importDefinitions
delete Template        | deleteClusterTemplate deleteClusterTemplateVersion deletePartialTemplate deletePartialTemplateVersion
list Service           | listServices
read Service           | getService getServiceVersion listServiceVersions
create Service         | createService
update Service         | putService
delete Service         | deleteService deleteServiceVersion
list Provider          | listProviders
read Provider          | getProvider getProviderVersion listProviderVersions
create Provider        | createProvider
update Provider        | putProvider
delete Provider        | deleteProvider deleteProviderVersion
list HardwareType      | listHardwareTypes
read HardwareType      | getHardwareType getHardwareTypeVersion listHardwareTypeVersions
create HardwareType    | createHardwareType
update HardwareType    | putHardwareType
delete HardwareType    | deleteHardwareType deleteHardwareTypeVersion
list ImageType         | listImageTypes
read ImageType         | getImageType getImageTypeVersion listImageTypeVersions
create ImageType       | createImageType
update ImageType       | putImageType
delete ImageType       | deleteImageType deleteImageTypeVersion
list Cluster           | listClusters listOperations watchEvents getAttention
read Cluster           | getCluster getClusterConfig diffCluster getClusterHealth listClusterHistory getClusterSnapshot
read Cluster           | listClusterServices debugPlans listPlans getPlan getOperation explainOperation listOperationTasks
read Cluster           | listEndpoints getEndpoint listConfigurations getConfiguration getTargetConfiguration getTargetConfigurationID
read Cluster           | getFrameworkID listProperties getProperty refreshState describeService
create Cluster         | createCluster
update Cluster         | putClusterConfig growCluster shrinkCluster addServicesCluster removeServicesCluster upgradeCluster
update Cluster         | syncTemplateCluster rollbackCluster updateService changeLease
delete Cluster         | deleteCluster
operate Cluster        | configureCluster startCluster stopCluster restartCluster startService stopService restartService pauseNodeCluster
operate Cluster        | resumeNodeCluster replaceNodeCluster recoverCluster pauseRecovery resumeRecovery resolveCluster startPlan
operate Cluster        | stopPlan restartPlan continuePlan interruptPlan forceCompletePlan pauseOperation resumeOperation abortOperation
operate Cluster        | rollbackOperation
label Cluster          | labelCluster
list Node              | listNodes listPods getPods
read Node              | getNode getPod getPodInfo getTask getTaskLog
exec Node              | runNodeCommand forwardNodePort
operate Node           | pausePod resumePod restartPod replacePod
admin Tenant           | listAudit exportAudit verifyAudit listSigningKeys getOrphans searchOrphans removeOrphan putProgramPreferences
admin Tenant           | deleteProgramPreferences
list Tenant            | listTenants
read Tenant            | getTenant
create Tenant          | createTenant
update Tenant          | putTenant
delete Tenant          | deleteTenant
list Policy            | listPolicyDocuments
read Policy            | getPolicyDocument getPolicyDocumentVersion listPolicyDocumentVersions
create Policy          | createPolicyDocument
update Policy          | putPolicyDocument
delete Policy          | deletePolicyDocument
list mesh Policy       | listMeshPolicyDocuments
read mesh Policy       | getMeshPolicyDocument getMeshPolicyDocumentVersion listMeshPolicyDocumentVersions
create mesh Policy     | createMeshPolicyDocument
update mesh Policy     | putMeshPolicyDocument
delete mesh Policy     | deleteMeshPolicyDocument
list User              | listUsers
read User              | getUser
create User            | createUser
update User            | putUser
delete User            | deleteUser
list Token             | listTokens
create Token           | createToken
delete Token           | deleteToken
list PluginResource    | listResources listResourcesOfType listResourceVersions
read PluginResource    | getResourceVersion
create PluginResource  | uploadResource
update PluginResource  | getResourceContent
delete PluginResource  | deleteResource deleteResourceVersion
operate PluginResource | syncResources activateResource recallResource stageResource
list Profile           | listProfiles listProvisioners
read Profile           | getProfile getProfileStatus getProvisioner getPreferences
update Profile         | putProfile enableProfile disableProfile putPreferences
delete Profile         | deleteProfile deletePreferences
read mesh Profile      | getSystemPreferences
update mesh Profile    | putSystemPreferences
delete mesh Profile    | deleteSystemPreferences
list Program           | listPrograms
read Program           | getProgram getProgramPreferences
update Program         | putProgram
delete Program         | deleteProgram
execute Program        | startProgram
list Run               | listRuns
read Run               | getRun getRunLog
create Run             | startRun
operate Run            | stopRun extendRun retryRun deprovisionRun
admin Run              | forceRun purgeRun
list Schedule          | listSchedules
read Schedule          | getSchedule
update Schedule        | putSchedule
delete Schedule        | deleteSchedule
operate Schedule       | enableSchedule disableSchedule
list Secret            | listSecrets
read Secret            | getSecret
update Secret          | putSecret
delete Secret          | deleteSecret
list Site              | listSites
read Site              | getSite getSiteGraph getSiteHistory getSiteStatus explainObject
update Site            | applySite planSite revertSite
delete Site            | deleteSite
operate Site           | checkSite
admin Site             | releaseObject
`

// rights holds the table by the names of the routes.
var rights = readRights()

func readRights() map[string]Right {
	out := map[string]Right{}
	for line := range strings.Lines(strings.TrimSpace(rightsTable)) {
		left, routes, _ := strings.Cut(line, "|")
		words := strings.Fields(left)
		var r Right
		if words[0] != "-" {
			r.Action, r.On = access.Action(words[0]), access.Type(words[len(words)-1])
			r.Mesh = len(words) == 3 || r.On == access.TypeMesh || r.On == access.TypeAgent
		}
		for _, id := range strings.Fields(routes) {
			if _, twice := out[id]; twice {
				panic(fmt.Sprintf("the route %s has two rights", id))
			}
			out[id] = r
		}
	}
	return out
}

// RightOf returns the right that a route needs.
func RightOf(route string) (Right, bool) {
	r, ok := rights[route]
	return r, ok
}
