"""Messages of the score service and their OpenAPI document."""
