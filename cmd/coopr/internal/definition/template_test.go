package definition_test

import (
	"testing"

	"github.com/coopr/coopr/rpc/server/apitest"

	"github.com/coopr/coopr/cmd/coopr/internal/clitest"
)

// TestTemplateStory lints and solves templates in the mesh and in files.
func TestTemplateStory(t *testing.T) {
	s := clitest.New(t)
	s.File("defs/all.yaml", `providers: [{name: cloud, providertype: cloud}]
hardwaretypes:
  - {name: big, providermap: {cloud: {flavor: "9", cost: "0.5", ram: "16"}}}
  - {name: small, providermap: {cloud: {flavor: "1", cost: "0.125", ram: "2"}}}
imagetypes: [{name: debian, providermap: {cloud: {image: d}}}]
services: [{name: base}, {name: db, resources: {ram: 8}}, {name: web}, {name: cache}]
clustertemplates:
  - name: shop
    defaults: {services: [base, db, web], provider: cloud}
    compatibility: {services: [base, db, web, cache]}
    constraints:
      layout: {cantcoexist: [[db, web]]}
      services: {db: {quantities: {min: 1, max: 3, odd: true, ratio: {max: "0.34"}}}}
      size: {max: 40}
`)
	s.Run(0, "import", "defs")
	s.As(apitest.User)
	s.Run(0, "template", "lint", "shop")
	s.Run(0, "template", "lint", "shop", "-o", "json")
	s.Run(3, "template", "lint", "shap")
	s.Run(0, "template", "solve", "shop", "--nodes", "1..50")
	s.Run(0, "template", "solve", "shop", "-n", "3", "-o", "yaml")
	s.Run(0, "template", "solve", "shop", "-n", "4", "--comparator", "original")
	s.Run(0, "template", "solve", "shop", "-n", "4", "--comparator", apitest.Backwards)
	s.Run(0, "template", "solve", "shop", "-n", "4", "--services", "web,cache", "--hardware", "big")
	s.Run(0, "template", "solve", "shop", "-n", "9", "--budget", "1")
	s.File("not.json", `[[{"count":1,"hardwaretype":"big","imagetype":"debian","services":["base","db"]},
{"count":2,"hardwaretype":"small","imagetype":"debian","services":["base","web"]}]]`)
	s.Run(0, "template", "solve", "shop", "-n", "3", "--exclude", "not.json")
	s.File("draft.yaml", "name: draft\ndefaults: {services: [base, db, web], provider: cloud, hardwaretype: small}\n")
	s.Run(0, "template", "solve", "draft.yaml", "-n", "1..3")
	s.Run(0, "template", "lint", "draft.yaml")
	s.File("worse.yaml", "name: worse\ndefaults: {services: [base, bd], provider: clod}\ncomparator: best\n")
	s.Run(1, "template", "lint", "worse.yaml")
	s.File("worst.yaml", "name: worst\ndefault: {}\n")
	s.Run(1, "template", "lint", "worst.yaml")
	s.Run(1, "template", "lint", "nothing.yaml")
	s.Run(1, "template", "solve", "worst.yaml", "-n", "1")
	s.Run(1, "template", "solve", "shop", "-n", "5..3")
	s.Run(1, "template", "solve", "shop", "-n", "1..20000")
	s.Run(1, "template", "solve", "shop", "-n", "3", "--comparator", "best", "--provider", "cloud")
	s.Run(1, "template", "solve", "shop", "-n", "3", "--services", "web,mail", "--image", "plan9")
	s.Run(3, "template", "solve", "shap", "-n", "3")
	s.Run(1, "cluster", "create", "x", "-t", "shop", "-n", "41")
	s.Run(2, "template", "solve", "shop")
	s.Run(2, "template", "solve", "shop", "-n", "three")
	s.Golden("template")
}
