"""The classes that users work with for assets other than tables: volumes, models and their versions, agent skills."""
