"""Patients: who answers the doctor.

One protocol (`base`), a scripted and a language-model patient, personas, and how true to the record a run's patients
were.
"""
