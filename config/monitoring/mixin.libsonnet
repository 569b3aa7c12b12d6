// Rules and dashboards for users of monitoring mixins.
{
  local rules = std.parseYaml(importstr 'rules.yaml'),
  local of(key) = {
    groups: [
      group { rules: [rule for rule in group.rules if std.objectHas(rule, key)] }
      for group in rules.groups
      if std.length([rule for rule in group.rules if std.objectHas(rule, key)]) > 0
    ],
  },
  prometheusAlerts+:: of('alert'),
  prometheusRules+:: of('record'),
  grafanaDashboards+:: {
    'dragoman-operations.json': import 'dashboards/operations.json',
    'dragoman-devices.json': import 'dashboards/devices.json',
  },
}
