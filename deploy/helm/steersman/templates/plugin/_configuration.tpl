{{/* The tag of kube-scheduler that was built for the cluster's minor; that of the newest has the version alone. */}}
{{- define "steersman.plugin.tag" -}}
{{- $minor := printf "1.%s" (regexFind "^[0-9]+" .Capabilities.KubeVersion.Minor) -}}
{{- .Chart.AppVersion }}{{ if has $minor (list "1.34" "1.35" "1.36") }}-kubernetes{{ $minor }}{{ end }}
{{- end }}

{{/* Whether the plugin asks the service of this release: "true" or "". */}}
{{- define "steersman.plugin.asksOwnService" -}}
{{- if and (eq .Values.plugin.mode "service") (not .Values.plugin.scoreService.endpoint) .Values.service.enabled }}true{{ end -}}
{{- end -}}

{{- define "steersman.plugin.endpoint" -}}
{{- if include "steersman.plugin.asksOwnService" . }}{{ include "steersman.service.url" . }}{{ else }}{{ .Values.plugin.scoreService.endpoint }}{{ end -}}
{{- end -}}

{{- define "steersman.plugin.tokenSecret" -}}
{{- if .Values.plugin.scoreService.tokenSecret }}{{ .Values.plugin.scoreService.tokenSecret }}
{{- else if include "steersman.plugin.asksOwnService" . }}{{ include "steersman.service.tokenSecret" . }}{{ end -}}
{{- end -}}

{{- define "steersman.plugin.tokenKey" -}}
{{- if .Values.plugin.scoreService.tokenSecret }}{{ .Values.plugin.scoreService.tokenKey }}{{ else }}{{ .Values.service.token.key }}{{ end -}}
{{- end -}}

{{/* Whether the plugin evaluates a policy itself: "true" or "". */}}
{{- define "steersman.plugin.decides" -}}
{{- if eq .Values.plugin.mode "native" }}true
{{- else if and (eq .Values.plugin.mode "shadow") (not .Values.plugin.scoreService.endpoint) }}true{{ end -}}
{{- end -}}

{{- define "steersman.plugin.configuration" -}}
# The configuration of a second scheduler, for pods with `schedulerName: {{ .Values.plugin.schedulerName }}`.
apiVersion: kubescheduler.config.k8s.io/v1
kind: KubeSchedulerConfiguration
leaderElection:
  leaderElect: true
  resourceName: {{ .Values.plugin.schedulerName | quote }}
  resourceNamespace: {{ .Values.leaseNamespace | quote }}
profiles:
  - schedulerName: {{ .Values.plugin.schedulerName | quote }}
    plugins:
      multiPoint:
        enabled:
          - name: Steersman
            weight: {{ .Values.plugin.weight }}
          {{- if and (ne .Values.plugin.mode "shadow") .Values.plugin.gpuWeight }}
          - name: SteersmanGpuWeight # for pods that request GPUs
            weight: {{ .Values.plugin.gpuWeight }}
          {{- end }}
          {{- if .Values.plugin.gpuShare }}
          - name: SteersmanGpuShare
          {{- end }}
          {{- if .Values.plugin.order }}
          - name: SteersmanOrder
          {{- end }}
      {{- if .Values.plugin.order }}
      queueSort: # a scheduler has one order of its queue
        disabled:
          - name: PrioritySort
      {{- end }}
      {{- if .Values.plugin.gpuShare }}
      bind:
        enabled:
          - name: SteersmanGpuShare
      {{- end }}
    pluginConfig:
      - name: Steersman
        args:
          mode: {{ .Values.plugin.mode }}
          timeout: {{ .Values.plugin.timeout }}
          logScores: {{ .Values.plugin.logScores }}
          {{- if include "steersman.plugin.decides" . }}
          {{- with .Values.plugin.policy.name }}
          policy: {{ . }}
          {{- end }}
          {{- if include "steersman.hasPolicyFile" .Values.plugin.policy }}
          policyFile: /etc/steersman-policy/{{ .Values.plugin.policy.file.key }}
          {{- end }}
          {{- end }}
          {{- with include "steersman.plugin.endpoint" . }}
          endpoint: {{ . }}
          {{- end }}
          {{- if include "steersman.plugin.tokenSecret" . }}
          tokenFile: /etc/steersman-token/{{ include "steersman.plugin.tokenKey" . }}
          {{- end }}
          {{- if .Values.plugin.scoreService.caSecret }}
          caFile: /etc/steersman-ca/{{ .Values.plugin.scoreService.caKey }}
          {{- end }}
      {{- with .Values.plugin.order }}
      - name: SteersmanOrder
        args:
          order: {{ . | quote }}
      {{- end }}
{{- end -}}
