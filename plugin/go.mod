// What kube-scheduler needs to place pods by a policy of steersman.
module steersman.dev/plugin

go 1.26.0
