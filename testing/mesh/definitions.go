package mesh

// definitions describe the simulated cluster: three services that depend on each other, with a
// configuration that refers to other nodes.
const definitions = `{
 "providers": [{"name": "cloud", "providertype": "sim"}],
 "hardwaretypes": [{"name": "small", "providermap": {"cloud": {"flavor": "s"}}}],
 "imagetypes": [{"name": "linux", "providermap": {"cloud": {"image": "l"}}}],
 "services": [
  {"name": "db", "provisioner": {"actions": {
    "install": {"type": "sim"}, "configure": {"type": "sim"}, "initialize": {"type": "sim"}, "start": {"type": "sim"},
    "stop": {"type": "sim"}}}},
  {"name": "app", "dependencies": {"runtime": {"requires": ["db"]}}, "provisioner": {"actions": {
    "install": {"type": "sim"}, "configure": {"type": "sim"}, "start": {"type": "sim"}, "stop": {"type": "sim"}}}},
  {"name": "lb", "dependencies": {"runtime": {"requires": ["app"]}}, "provisioner": {"actions": {
    "configure": {"type": "sim"}, "start": {"type": "sim"}, "stop": {"type": "sim"}}}}
 ],
 "clustertemplates": [{
  "name": "trio",
  "defaults": {"services": ["db", "app", "lb"], "provider": "cloud", "hardwaretype": "small", "imagetype": "linux",
   "config": {"db": "%ip.access_v4.service.db%", "apps": "%ip.access_v4.service.app%"}},
  "compatibility": {"services": ["db", "app", "lb"], "hardwaretypes": ["small"], "imagetypes": ["linux"]},
  "constraints": {
   "layout": {"cantcoexist": [["db", "app"], ["db", "lb"], ["app", "lb"]]},
   "services": {"db": {"quantities": {"min": 1, "max": 1}}, "lb": {"quantities": {"min": 1, "max": 1}}, "app": {"quantities": {"min": 1}}}}
 }]
}`
