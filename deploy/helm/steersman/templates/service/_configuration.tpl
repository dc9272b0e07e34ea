{{/* The folder of certificate and key: that of the token, unless they are in a Secret of their own. */}}
{{- define "steersman.service.tlsFolder" -}}
{{- if .Values.service.tls.existingSecret }}/etc/steersman-tls{{ else }}/etc/steersman-secret{{ end -}}
{{- end -}}

{{- define "steersman.service.tokenSecret" -}}
{{- default (include "steersman.name" (list . "service")) .Values.service.token.existingSecret -}}
{{- end -}}

{{- define "steersman.service.scheme" -}}
{{- if .Values.service.tls.enabled }}https{{ else }}http{{ end -}}
{{- end -}}

{{- define "steersman.service.url" -}}
{{ include "steersman.service.scheme" . }}://{{ include "steersman.name" (list . "service") }}.{{ .Release.Namespace }}.svc:5000
{{- end -}}

{{- define "steersman.service.configuration" -}}
apiVersion: steersman.dev/v1alpha1
kind: ScoreServiceConfiguration
policy: {{ include "steersman.policy" .Values.service.policy | quote }}
address: 0.0.0.0
port: 5000
{{- with .Values.service.configuration }}
{{ toYaml . }}
{{- end }}
tokenFile: /etc/steersman-secret/{{ .Values.service.token.key }}
{{- with .Values.service.tls }}
{{- if .enabled }}
tls:
  certificate: {{ include "steersman.service.tlsFolder" $ }}/{{ .certificateKey }}
  key: {{ include "steersman.service.tlsFolder" $ }}/{{ .keyKey }}
{{- end }}
{{- end }}
{{- if include "steersman.telemetryConfigMap" . }}
telemetry: {{ include "steersman.telemetryPath" . }}
{{- end }}
{{- end -}}
