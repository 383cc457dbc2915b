package mesh

import (
	"github.com/coopr/coopr/rpc/api"

	"github.com/coopr/coopr/cmd/coopr/internal/output"
)

// compromisedCosts says what the removal of a compromised voter costs.
const compromisedCosts = `This costs:
- All join tokens end.
- Clients and browsers need the new certificate of the CA.
- An agent that is away until the old CA is dropped has to join again, as a new agent.
- All secrets are encrypted again, and each member of the Raft group replaces its log and snapshots.
- The mesh needs an export of the old keyring to restore a snapshot from before.
`

// compromisedRest says what people have to do after the removal of a compromised voter.
const compromisedRest = `What is left to do:
1. Give clients and browsers the new certificate of the CA, which coopr-agent ca prints on an agent's host. Until they have it, they refuse
   the mesh; so does coopr. Remove the old root from browsers.
2. Replace the root token: coopr operator root rotate
3. Revoke the tokens and change the passwords of those who used the API of this agent: it saw them. It had the hashes of all passwords: have
   those changed that can be guessed.
4. Change what was in files of its machine, such as agent.yaml, key files of plugins, and the token of its keyring.
5. Once coopr operator rotations shows ca and keyring done, export the keyring (coopr-agent keyring export) and save a snapshot.
`

// showCompromised shows what is left to do after the removal of a compromised voter.
func showCompromised(out *output.Printer, agent string, exposed []api.Exposed) {
	out.Printf("Agent %s is removed from the mesh, and the keys that it had are being replaced: coopr operator rotations\n\n", agent)
	out.Printf("%s", compromisedRest)
	if len(exposed) == 0 {
		return
	}
	out.Println("6. Change these secrets where they are used, and then here: the agent could decrypt them.\n" +
		"   Of users it could decrypt a refresh token: end their logins at the identity provider.")
	t := output.Table{Head: []string{"TENANT", "KIND", "NAME"}}
	for _, x := range exposed {
		t.Row(x.Tenant, x.Kind, x.Name)
	}
	out.Show(t)
}
